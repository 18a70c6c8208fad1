// The state of a dirty page beside its dirty bit: which granules differ from the file, and whether
// they are being written to it.
//
// Each frame has these words, in device memory (FileSystemState): marks, a bit for each 64 bytes
// and a word for each 4 KiB; snapshots, of the same size; the write-back word; and its completion.
// The completion has the form of a read's (make_completion), with the write-back's number as its
// generation. GPU threads write all words but completions, at device scope. The host writes
// completions and reads snapshots. The protocol is in device/dirty_page.cuh.
//
//   write-back word: number 17 | phase 2, from the high end
//   kIdle --[begin_write_back: the next number, the marks are in the snapshot]--> kUnderWay
//   kUnderWay --[finish_write_back, after the completion with that number]--> kEnding --> kIdle
//   kUnderWay <--[truncation, of which the host knows nothing]--> kHeld
#pragma once

#include <cstdint>

#include "penstock/abi/limits.h"
#include "penstock/abi/page_entry.h"

namespace penstock {

enum class WritePhase : uint32_t { kIdle, kUnderWay, kEnding, kHeld };

using WriteBackWord = uint64_t;

PENSTOCK_BOTH constexpr WriteBackWord make_write_back(uint32_t number, WritePhase phase) {
    return uint64_t{number} << 2 | static_cast<uint64_t>(phase);
}
PENSTOCK_BOTH constexpr uint32_t number_of(WriteBackWord word) {
    return static_cast<uint32_t>(word >> 2 & kGenerationMax);
}
PENSTOCK_BOTH constexpr WritePhase phase_of(WriteBackWord word) {
    return static_cast<WritePhase>(word & 3);
}

constexpr int kMarkShift = 12;  // log2 of the bytes that a word of marks covers
static_assert(64 * limits::kGranuleSize == 1u << kMarkShift);

// Returns the bits of the granules that bytes [begin, end) of a page touch, in word `index` of its
// marks. Requires that they touch this word.
PENSTOCK_BOTH constexpr uint64_t marks_of(uint64_t begin, uint64_t end, uint64_t index) {
    const uint64_t word_begin = index << kMarkShift, word_end = word_begin + (1ull << kMarkShift);
    const uint64_t from = begin > word_begin ? (begin - word_begin) / limits::kGranuleSize : 0;
    const uint64_t last = ((end < word_end ? end : word_end) - 1 - word_begin) /
                          limits::kGranuleSize;
    return ~0ull >> (63 - last) & ~0ull << from;
}
static_assert(marks_of(0, 4096, 0) == ~0ull);
static_assert(marks_of(63, 65, 0) == 3);
static_assert(marks_of(4095, 4097, 1) == 1);

// Returns the index of the word that counts the writes to a page of a file. The file's directory
// begins at `directory_first`.
PENSTOCK_BOTH constexpr uint64_t sequence_index(uint64_t directory_first, PageIndex page,
                                                uint32_t sequence_count) {
    constexpr uint64_t kGroupPages = 64;
    return (directory_first * (limits::kLeafEntries / kGroupPages) + page / kGroupPages) &
           (sequence_count - 1);
}

}  // namespace penstock
