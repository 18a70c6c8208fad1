// What one slice of a file says about its lines, and how slices in order add up to the answer for
// the file.
//
// A file is cut into slices [begin, end) at any bytes. The rule that makes the sum exact: a slice
// owns the newlines in it and the matches that START in it; to see those whole it may look `longest
// - 1` bytes past its end. No pattern holds a newline, so a match lies within one line, and lines
// and patterns may be longer than any slice.
//
// Written by GPU threads, read by the host, by value; the same record serves a lane's slice and a
// block's stride.
#pragma once

#include <cstdint>

#include "penstock/abi/qualifiers.h"

namespace penstock::scan {

struct SliceRecord {
    uint64_t newline_count;  // exact when lines are wanted; else only 0 or not 0
    uint64_t inner_count;    // matching lines that begin and end in the slice
    uint64_t tail_start;     // where the last line begins, from the slice's begin; exact when lines
                             // are wanted
    uint32_t head_matched;   // 1: a match before the first newline, or anywhere if there is none
    uint32_t tail_matched;   // 1: a match behind the last newline; 0 if there is none
};

// A matching line as one slice sees it. A line that spans slices is named once by each that holds a
// match of it.
struct LineEntry {
    uint32_t line;   // newlines of the slice before it; 0: the line began at or before the slice's
                     // begin
    uint32_t start;  // from the slice's begin to its first byte in this slice
};

// Lines a record names: as many LineEntry as its slice has.
PENSTOCK_BOTH inline uint64_t entry_count(const SliceRecord& record) {
    return record.inner_count + record.head_matched + record.tail_matched;
}

// Makes `sum` the record of its slice and `next`, which follows it directly and begins `begin`
// bytes after it does.
PENSTOCK_BOTH inline void append_slice(SliceRecord* sum, const SliceRecord& next, uint64_t begin) {
    uint32_t* open_matched = sum->newline_count == 0 ? &sum->head_matched : &sum->tail_matched;
    *open_matched |= next.head_matched;
    if (next.newline_count == 0) return;
    if (sum->newline_count > 0) sum->inner_count += sum->tail_matched;
    sum->newline_count += next.newline_count;
    sum->inner_count += next.inner_count;
    sum->tail_start = begin + next.tail_start;
    sum->tail_matched = next.tail_matched;
}

// The slices of one file, added up in order. Owned by one host thread.
class LineFold {
public:
    LineFold() = default;
    // For slices that begin with a line, at offset `begin` in the file; `line_count` lines are
    // before it.
    LineFold(uint64_t begin, uint64_t line_count) {
        sum_.newline_count = line_count;
        sum_.tail_start = begin;
    }
    // `begin` is the slice's offset in the file.
    void add(const SliceRecord& record, uint64_t begin) { append_slice(&sum_, record, begin); }

    // Matching lines, the unfinished one included: what `grep -c` prints once all slices were
    // added.
    [[nodiscard]] uint64_t match_count() const { return entry_count(sum_); }
    // Newlines of all slices, and the lines before them: exact when lines are wanted.
    [[nodiscard]] uint64_t line_count() const { return sum_.newline_count; }
    // Before add(): the number, from 1, and the offset in the file of the line that an entry of the
    // slice names.
    [[nodiscard]] uint64_t line_number(const LineEntry& entry) const {
        return sum_.newline_count + entry.line + 1;
    }
    [[nodiscard]] uint64_t line_start(const LineEntry& entry, uint64_t begin) const {
        return entry.line == 0 ? sum_.tail_start : begin + entry.start;
    }

private:
    SliceRecord sum_{};
};

}  // namespace penstock::scan
