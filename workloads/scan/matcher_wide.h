// The matcher of the CPU backend: a block's leader searches its whole stride with the widest
// instructions there are.
//
// A WideEngine is an Engine of matcher.cuh. It looks at a sample of the text and picks the filter
// that should cost least there; what a filter lets through is verified, so the choice changes the
// time and never the result. The filters:
// - pair: one pattern; two of its rarest bytes at their distance, 64 positions at once
// - run: only where `run_size` bytes that patterns use stand in a row (numbers, addresses, hashes)
// - scalar: as ScalarEngine; sampled grams, or pairs where a pattern is shorter than a gram
// Without AVX2 it is always scalar. Immutable after construction.
#pragma once

#include "scan/matcher.cuh"

namespace penstock::scan {

enum class Filter : uint8_t { kScalar, kPair, kRun };

class WideEngine {
public:
    // Picks for the text in [begin, end).
    WideEngine(const PatternTable& table, const Text& text, size_t begin, size_t end);
    // For tests and measurements: a filter that applies to the table.
    explicit WideEngine(Filter filter);

    [[nodiscard]] size_t find(const PatternTable& table, const Text& text, size_t from,
                              size_t end) const;
    [[nodiscard]] size_t find_newline(const uint8_t* bytes, size_t from, size_t end) const;
    [[nodiscard]] size_t line_begin(const uint8_t* bytes, size_t from, size_t end) const;
    [[nodiscard]] uint64_t count_newlines(const uint8_t* bytes, size_t from, size_t end) const;

    [[nodiscard]] Filter filter() const { return filter_; }

private:
    Filter filter_;
};

const char* filter_name(Filter filter);
// Whether `filter` finds all matches of the table's patterns on this machine.
bool filter_applies(const PatternTable& table, Filter filter);

// scan_slice() with a WideEngine picked for the slice.
SliceRecord scan_slice_wide(const PatternTable& table, const Text& text, size_t begin, size_t end,
                            Wanted wanted, LineEntry* entries);

}  // namespace penstock::scan
