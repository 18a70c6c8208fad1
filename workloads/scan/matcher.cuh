// Finds the lines of a slice of text that hold any pattern. Plain CUDA C++: GPU threads run it, and
// so does g++.
//
// scan_slice() is the whole search over an Engine, which finds matches and newlines. ScalarEngine
// is for one GPU thread; the CPU backend's leader runs WideEngine (matcher_wide.h) over its block's
// whole stride instead. Sampled grams: of the 4-byte grams at offsets 0 .. step-1 of each pattern,
// one stands at a multiple of step in any text that holds the pattern; so every step-th gram is
// probed and only hits are verified. A verification compares with log2(patterns of one bucket), so
// text made of nearly-matching long patterns costs far more than other text (17 MB/s a core was the
// worst found; an automaton would bound it).
// Knows nothing of files. Reads the table and the text only; the text is readable to kTextPadding
// past `limit`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "scan/pattern_table.h"
#include "scan/slice_record.h"

namespace penstock::scan {

// Text in memory: slices are ranges of it, `limit` is where it ends. GPU threads want `bytes`
// aligned to 4.
struct Text {
    const uint8_t* bytes;
    size_t limit;
};

// Little-endian words at any alignment.
PENSTOCK_BOTH inline uint32_t load_word(const uint8_t* bytes, size_t at) {
#ifdef __CUDA_ARCH__
    const uint32_t* words = reinterpret_cast<const uint32_t*>(bytes) + (at >> 2);
    return __funnelshift_r(words[0], words[1], static_cast<uint32_t>(at & 3) * 8);
#else
    uint32_t word;
    memcpy(&word, bytes + at, sizeof word);
    return word;
#endif
}
PENSTOCK_BOTH inline uint64_t load_two_words(const uint8_t* bytes, size_t at) {
#ifdef __CUDA_ARCH__
    return load_word(bytes, at) | uint64_t{load_word(bytes, at + 4)} << 32;
#else
    uint64_t words;
    memcpy(&words, bytes + at, sizeof words);
    return words;
#endif
}

// Bytes that a search on the host asks memory for ahead of itself: the CPU's own prefetchers stop
// at each page, and a mapped text comes from memory. What it asks for may lie beyond the text: a
// prefetch faults nowhere.
constexpr size_t kAhead = 2048;

PENSTOCK_BOTH inline void look_ahead(const uint8_t* from) {
#ifndef __CUDA_ARCH__
    __builtin_prefetch(from + kAhead);
#endif
}

// Below, at, above 0: the text at `at` sorts behind, begins with, sorts before the pattern. A text
// that ends within the pattern sorts before it.
PENSTOCK_BOTH inline int compare_at(const PatternTable& table, const PatternSpan& span,
                                    const Text& text, size_t at) {
    const uint8_t* pattern = table_at<uint8_t>(table, table.bytes_offset) + span.offset;
    const size_t left = text.limit - at;
    const size_t size = span.size < left ? span.size : left;
#ifdef __CUDA_ARCH__
    for (size_t i = 0; i < size; ++i)
        if (pattern[i] != text.bytes[at + i]) return pattern[i] < text.bytes[at + i] ? -1 : 1;
#else
    const int order = memcmp(pattern, text.bytes + at, size);
    if (order != 0) return order;
#endif
    return span.size <= left ? 0 : 1;
}

// Whether a pattern of 4 bytes or more stands at `at`; the prefix bitmap said it may. No pattern
// begins with another, so only the last one of the bucket that does not sort behind the text can
// stand there.
PENSTOCK_BOTH inline bool bucket_holds(const PatternTable& table, uint64_t prefix, const Text& text,
                                       size_t at) {
    const uint32_t* begin = table_at<uint32_t>(table, table.bucket_begin_offset);
    const uint32_t bucket = hash_prefix(prefix, table.bucket_bits);
    const PatternSpan* spans = table_at<PatternSpan>(table, table.spans_offset);
    uint32_t low = begin[bucket], high = begin[bucket + 1];
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = compare_at(table, spans[middle], text, at);
        if (order == 0) return true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

PENSTOCK_BOTH inline bool long_at(const PatternTable& table, const Text& text, size_t at) {
    const uint64_t prefix = load_two_words(text.bytes, at) & table.prefix_mask;
    const auto* bits = table_at<uint32_t>(table, table.prefix_bits_offset);
    if (!test_bit(bits, hash_prefix(prefix, table.prefix_bits))) return false;
    return bucket_holds(table, prefix, text, at);
}

PENSTOCK_BOTH inline bool short_at(const PatternTable& table, const Text& text, size_t at) {
    const uint32_t word = load_word(text.bytes, at);
    const size_t left = text.limit - at;
    if (table.ones_offset != 0 &&
        test_bit(table_at<uint32_t>(table, table.ones_offset), word & 0xFF))
        return true;
    if (table.twos_offset != 0 && left >= 2 &&
        test_bit(table_at<uint32_t>(table, table.twos_offset), word & 0xFFFF))
        return true;
    return table.threes_offset != 0 && left >= 3 &&
           test_bit(table_at<uint32_t>(table, table.threes_offset), word & 0xFFFFFF);
}

// Whether any pattern stands at `at`, which lies before the limit.
PENSTOCK_BOTH inline bool matches_at(const PatternTable& table, const Text& text, size_t at) {
    if (table.shortest < kGramSize && short_at(table, text, at)) return true;
    return table.long_count > 0 && long_at(table, text, at);
}

// The first match in [from, end) whose start is one of those that the gram at `probe` allows; `end`
// if none.
PENSTOCK_BOTH inline size_t verify_gram(const PatternTable& table, const Text& text, size_t probe,
                                        uint32_t slot, size_t from, size_t end) {
    uint32_t mask = table_at<uint8_t>(table, table.gram_masks_offset)[slot];
    for (uint32_t offset = 0; mask != 0; ++offset, mask >>= 1) {
        const size_t at = probe - offset;
        if ((mask & 1) != 0 && probe >= from + offset && at < end && long_at(table, text, at))
            return at;
    }
    return end;
}

// Matches and newlines for one GPU thread. find(): where a match in the first line that has one
// starts; `end`: none. A match of a later line is never named before one of an earlier line.
struct ScalarEngine {
    [[nodiscard]] PENSTOCK_BOTH size_t find(const PatternTable& table, const Text& text,
                                            size_t from, size_t end) const {
        return table.gram_step > 0 ? find_by_grams(table, text, from, end)
                                   : find_by_pairs(table, text, from, end);
    }

    PENSTOCK_BOTH static size_t find_by_grams(const PatternTable& table, const Text& text,
                                              size_t from, size_t end) {
        const auto* grams = table_at<uint32_t>(table, table.grams_offset);
        const size_t past = end + table.gram_step - 1;  // the last start's gram
        const size_t last = past + kGramSize - 1 <= text.limit ? past
                                                               : text.limit - (kGramSize - 1);
        if (text.limit < kGramSize) return end;
        for (size_t probe = from; probe < last; probe += table.gram_step) {
            look_ahead(text.bytes + probe);
            const uint32_t slot = hash_gram(load_word(text.bytes, probe), table.gram_bits);
            if (!test_bit(grams, slot)) continue;
            const size_t at = verify_gram(table, text, probe, slot, from, end);
            if (at < end) return at;
        }
        return end;
    }

    PENSTOCK_BOTH static size_t find_by_pairs(const PatternTable& table, const Text& text,
                                              size_t from, size_t end) {
        const auto* pairs = table_at<uint32_t>(table, table.pairs_offset);
        for (size_t at = from; at < end; ++at)
            if (test_bit(pairs, load_word(text.bytes, at) & 0xFFFF) && matches_at(table, text, at))
                return at;
        return end;
    }

    [[nodiscard]] PENSTOCK_BOTH size_t find_newline(const uint8_t* bytes, size_t from,
                                                    size_t end) const {
        while (from < end && bytes[from] != '\n') ++from;
        return from;
    }
    // One past the last newline in [from, end); `from` if there is none.
    [[nodiscard]] PENSTOCK_BOTH size_t line_begin(const uint8_t* bytes, size_t from,
                                                  size_t end) const {
        while (end > from && bytes[end - 1] != '\n') --end;
        return end;
    }
    [[nodiscard]] PENSTOCK_BOTH uint64_t count_newlines(const uint8_t* bytes, size_t from,
                                                        size_t end) const {
        uint64_t count = 0;
        for (; from < end; ++from) count += bytes[from] == '\n';
        return count;
    }
};

// Every line matches: also the newline of an empty line is a byte of it.
template <class Engine>
PENSTOCK_BOTH void name_every_line(const Engine& engine, const Text& text, size_t begin, size_t end,
                                   LineEntry* entries, SliceRecord* record) {
    uint32_t line = 0;
    for (size_t at = begin; at < end; ++line) {
        entries[line] = {line, static_cast<uint32_t>(at - begin)};
        at = engine.find_newline(text.bytes, at, end) + 1;
    }
    record->newline_count = engine.count_newlines(text.bytes, begin, end);
}

template <class Engine>
PENSTOCK_BOTH void scan_every_line(const Engine& engine, const Text& text, size_t begin, size_t end,
                                   SliceRecord* record) {
    record->newline_count = engine.count_newlines(text.bytes, begin, end);
    record->tail_start = engine.line_begin(text.bytes, begin, end) - begin;
    record->head_matched = 1;
    if (record->newline_count == 0) return;
    record->inner_count = record->newline_count - 1;
    record->tail_matched = text.bytes[end - 1] != '\n';
}

// Whether and how many lines match; newlines are counted only as "none" or "some".
template <class Engine>
PENSTOCK_BOTH void count_slice(const Engine& engine, const PatternTable& table, const Text& text,
                               size_t begin, size_t end, SliceRecord* record) {
    const size_t head_end = engine.find_newline(text.bytes, begin, end);
    record->newline_count = head_end < end;
    uint64_t inner_count = 0;
    for (size_t at = begin; at < end;) {
        const size_t match = engine.find(table, text, at, end);
        if (match >= end) break;
        const bool head = match < head_end;
        const size_t line_end = head ? head_end : engine.find_newline(text.bytes, match, end);
        if (head)
            record->head_matched = 1;
        else if (line_end < end)
            ++inner_count;
        else
            record->tail_matched = 1;
        at = line_end + 1;
    }
    record->inner_count = inner_count;
}

// The same with exact newline counts; writes the entries if `entries` is not null.
template <class Engine>
PENSTOCK_BOTH void name_slice(const Engine& engine, const PatternTable& table, const Text& text,
                              size_t begin, size_t end, LineEntry* entries, SliceRecord* record) {
    uint64_t line = 0, inner_count = 0;
    size_t at = begin;  // a line's first byte, or begin; `line` newlines lie before it
    while (at < end) {
        const size_t match = engine.find(table, text, at, end);
        if (match >= end) break;
        const size_t start = engine.line_begin(text.bytes, at, match);
        line += engine.count_newlines(text.bytes, at, start);
        if (entries != nullptr)
            *entries++ = {static_cast<uint32_t>(line), static_cast<uint32_t>(start - begin)};
        at = engine.find_newline(text.bytes, match, end) + 1;
        const bool finished = at <= end;
        if (line == 0)
            record->head_matched = 1;
        else if (finished)
            ++inner_count;
        else
            record->tail_matched = 1;
        line += finished;
    }
    if (at < end) line += engine.count_newlines(text.bytes, at, end);
    record->inner_count = inner_count;
    record->newline_count = line;
    record->tail_start = engine.line_begin(text.bytes, begin, end) - begin;
}

enum class Wanted : uint32_t {
    kCount,    // how many lines: entries is null
    kNumbers,  // the same with exact newline counts, so that lines can be numbered: entries is null
    kEntries,  // also each line: entries has room for entry_count() of the record that kNumbers
               // gave
};

// Searches the matches that start in [begin, end) of the text; end - begin < 4 GiB. Called by one
// thread for itself.
template <class Engine>
PENSTOCK_BOTH SliceRecord scan_slice(const Engine& engine, const PatternTable& table,
                                     const Text& text, size_t begin, size_t end, Wanted wanted,
                                     LineEntry* entries) {
    SliceRecord record{};
    if (begin >= end) return record;
    if (table.every_line != 0) {
        scan_every_line(engine, text, begin, end, &record);
        if (wanted == Wanted::kEntries) name_every_line(engine, text, begin, end, entries, &record);
    } else if (wanted == Wanted::kCount) {
        count_slice(engine, table, text, begin, end, &record);
    } else {
        name_slice(engine, table, text, begin, end, entries, &record);
    }
    return record;
}

}  // namespace penstock::scan
