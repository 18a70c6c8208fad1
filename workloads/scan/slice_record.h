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
    uint32_t
        line;  // newlines of the slice before it; 0: the line began at or before the slice's begin
    uint32_t start;  // from the slice's begin to its first byte in this slice
};

// Lines a record names: as many LineEntry as its slice has.
PENSTOCK_BOTH inline uint64_t entry_count(const SliceRecord& record) {
    return record.inner_count + record.head_matched + record.tail_matched;
}

// Adds up the slices of one file, in order. Owned by one host thread.
class LineFold {
public:
    // `begin` is the slice's offset in the file.
    void add(const SliceRecord& record, uint64_t begin) {
        open_matched_ |= record.head_matched != 0;
        if (record.newline_count == 0) return;
        match_count_ += record.inner_count + (open_matched_ ? 1 : 0);
        newline_count_ += record.newline_count;
        open_start_ = begin + record.tail_start;
        open_matched_ = record.tail_matched != 0;
    }

    // Matching lines, the unfinished one included: what `grep -c` prints once all slices were
    // added.
    [[nodiscard]] uint64_t match_count() const { return match_count_ + (open_matched_ ? 1 : 0); }
    // Before add(): the number, from 1, and the offset in the file of the line that an entry of the
    // slice names.
    [[nodiscard]] uint64_t line_number(const LineEntry& entry) const {
        return newline_count_ + entry.line + 1;
    }
    [[nodiscard]] uint64_t line_start(const LineEntry& entry, uint64_t begin) const {
        return entry.line == 0 ? open_start_ : begin + entry.start;
    }

private:
    uint64_t match_count_ = 0;    // of finished lines
    uint64_t newline_count_ = 0;  // exact when lines are wanted
    uint64_t open_start_ = 0;     // offset of the line that is not finished yet
    bool open_matched_ = false;
};

}  // namespace penstock::scan
