// Picks the filter for a text; see matcher_wide.h.
#include "scan/matcher_wide.h"

#include <algorithm>
#include <cstring>

#include "scan/matcher_avx2.h"

namespace penstock::scan {
namespace {

// The sample: so many bytes at the begin and in the middle of the text.
constexpr size_t kSampleSize = 2048;

// Cycles, measured on Zen 4: of a byte or a probe that the filter looks at, and of one that it lets
// through (a mispredicted branch and the verification).
constexpr double kRunByte = 0.14, kRunCandidate = 11;
constexpr double kProbe = 1.5, kGramCandidate = 30, kPairCandidate = 12;

bool has_avx2() {
    static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
    return has;
}

uint64_t count_gram_candidates(const PatternTable& table, const Text& text, size_t from,
                               size_t end) {
    const auto* grams = table_at<uint32_t>(table, table.grams_offset);
    uint64_t count = 0;
    for (; from < end; from += table.gram_step)
        count += test_bit(grams, hash_gram(load_word(text.bytes, from), table.gram_bits));
    return count;
}

uint64_t count_pair_candidates(const PatternTable& table, const Text& text, size_t from,
                               size_t end) {
    const auto* pairs = table_at<uint32_t>(table, table.pairs_offset);
    uint64_t count = 0;
    for (; from < end; ++from) count += test_bit(pairs, load_word(text.bytes, from) & 0xFFFF);
    return count;
}

// Cycles that the filter should take for [from, end).
double run_cost(const PatternTable& table, const Text& text, size_t from, size_t end) {
    const auto count = static_cast<double>(avx2::count_run_candidates(table, text, from, end));
    return static_cast<double>(end - from) * kRunByte + count * kRunCandidate;
}

double scalar_cost(const PatternTable& table, const Text& text, size_t from, size_t end) {
    const auto size = static_cast<double>(end - from);
    if (table.gram_step > 0) {
        const auto count = static_cast<double>(count_gram_candidates(table, text, from, end));
        return size / table.gram_step * kProbe + count * kGramCandidate;
    }
    const auto count = static_cast<double>(count_pair_candidates(table, text, from, end));
    return size * kProbe + count * kPairCandidate;
}

Filter pick(const PatternTable& table, const Text& text, size_t begin, size_t end) {
    if (!has_avx2() || table.pattern_count == 0) return Filter::kScalar;
    if (table.pattern_count == 1) return Filter::kPair;
    const size_t middle = begin + (end - begin) / 2;
    const size_t first_end = std::min(end, begin + kSampleSize);
    const size_t second_end = std::min(end, middle + kSampleSize);
    const double run = run_cost(table, text, begin, first_end) +
                       run_cost(table, text, middle, second_end);
    const double scalar = scalar_cost(table, text, begin, first_end) +
                          scalar_cost(table, text, middle, second_end);
    return run < scalar ? Filter::kRun : Filter::kScalar;
}

}  // namespace

WideEngine::WideEngine(const PatternTable& table, const Text& text, size_t begin, size_t end)
    : filter_(pick(table, text, begin, end)) {}

WideEngine::WideEngine(Filter filter) : filter_(has_avx2() ? filter : Filter::kScalar) {}

size_t WideEngine::find(const PatternTable& table, const Text& text, size_t from,
                        size_t end) const {
    switch (filter_) {
        case Filter::kPair:
            return avx2::find_pair(table, text, from, end);
        case Filter::kRun:
            return avx2::find_run(table, text, from, end);
        case Filter::kScalar:
            break;
    }
    return ScalarEngine().find(table, text, from, end);
}

size_t WideEngine::find_newline(const uint8_t* bytes, size_t from, size_t end) const {
    if (from >= end) return from;
    const void* at = std::memchr(bytes + from, '\n', end - from);
    return at == nullptr ? end : static_cast<size_t>(static_cast<const uint8_t*>(at) - bytes);
}

size_t WideEngine::line_begin(const uint8_t* bytes, size_t from, size_t end) const {
    const void* at = from >= end ? nullptr : memrchr(bytes + from, '\n', end - from);
    return at == nullptr ? from : static_cast<size_t>(static_cast<const uint8_t*>(at) - bytes) + 1;
}

uint64_t WideEngine::count_newlines(const uint8_t* bytes, size_t from, size_t end) const {
    if (filter_ == Filter::kScalar) return ScalarEngine().count_newlines(bytes, from, end);
    return avx2::count_newlines(bytes, from, end);
}

const char* filter_name(Filter filter) {
    constexpr const char* kNames[] = {"scalar", "pair", "run"};
    return kNames[static_cast<size_t>(filter)];
}

bool filter_applies(const PatternTable& table, Filter filter) {
    if (filter == Filter::kScalar) return true;
    return has_avx2() &&
           (filter == Filter::kPair ? table.pattern_count == 1 : table.pattern_count > 0);
}

SliceRecord scan_slice_wide(const PatternTable& table, const Text& text, size_t begin, size_t end,
                            Wanted wanted, LineEntry* entries) {
    if (begin >= end) return {};
    return scan_slice(WideEngine(table, text, begin, end), table, text, begin, end, wanted,
                      entries);
}

}  // namespace penstock::scan
