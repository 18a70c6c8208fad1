// The page entry: one 64-bit word for each page of a file. It says where the page is, in which
// state, and how many hold it.
//
//   bit  0..2   state        PageState
//   bit  3      dirty        frame differs from the file, or is being written back: keeps its frame
//   bit  4      touched      used again since it was filled: its second chance with CLOCK
//   bit  5..18  pins         teams and views that hold or examine the frame; in any state
//   bit 19..35  generation   number of the fill; completions[frame] has the same once it is over
//   bit 36..63  frame        frame that holds the page; meaningful in FETCHING, VALID, FAILED
//
// It lies in a leaf of the page table, in device memory. GPU threads write and read it (device
// scope). On the CPU backend the host does, too, when it drops a file's pages. The protocol is in
// device/page_entry.cuh. The initial word is 0: EMPTY, no pins.
#pragma once

#include <cstdint>

#include "penstock/abi/limits.h"
#include "penstock/abi/qualifiers.h"

namespace penstock {

using PageEntry = uint64_t;
using FrameIndex = uint32_t;
using PageIndex = uint64_t;

//   EMPTY -> FETCHING          [claim]
//   FETCHING -> VALID          [publish: the bytes have arrived]
//   FETCHING -> FAILED         [publish: an errno has arrived]
//   FAILED -> FETCHING         [claim_again: same frame]
//   VALID, FAILED -> EMPTY     [evict: clean, zero pins]
//   EMPTY -> RETIRED           [retire: its leaf is being given to other pages]
//   RETIRED -> EMPTY           [restore]
//   EMPTY -> EMPTY             [renew: bytes that were read for it before must not be used]
// EMPTY keeps the frame and generation of its last fill. A thread that finds the same word again
// knows that the page was not filled in between.
// No transition enters EVICTING: a page that is written back stays VALID (device/dirty_page.cuh).
enum class PageState : uint32_t { kEmpty, kFetching, kValid, kEvicting, kFailed, kRetired };

constexpr uint64_t kStateMask = 7;
constexpr uint64_t kDirtyBit = 1ull << 3;
constexpr uint64_t kTouchedBit = 1ull << 4;
constexpr int kPinShift = 5;
constexpr uint64_t kPinUnit = 1ull << kPinShift;
constexpr uint64_t kPinMask = ((1ull << limits::kPinBits) - 1) << kPinShift;
constexpr int kGenerationShift = kPinShift + limits::kPinBits;
constexpr uint64_t kGenerationMax = (1ull << limits::kGenerationBits) - 1;
constexpr int kFrameShift = kGenerationShift + limits::kGenerationBits;
constexpr uint64_t kFillMask = ~0ull << kGenerationShift;  // frame and generation
static_assert(kFrameShift + limits::kFrameBits == 64, "the entry is one full word");

PENSTOCK_BOTH constexpr PageState state_of(PageEntry entry) {
    return static_cast<PageState>(entry & kStateMask);
}
PENSTOCK_BOTH constexpr FrameIndex frame_of(PageEntry entry) {
    return static_cast<FrameIndex>(entry >> kFrameShift);
}
PENSTOCK_BOTH constexpr uint32_t generation_of(PageEntry entry) {
    return static_cast<uint32_t>((entry >> kGenerationShift) & kGenerationMax);
}
PENSTOCK_BOTH constexpr uint32_t pins_of(PageEntry entry) {
    return static_cast<uint32_t>((entry & kPinMask) >> kPinShift);
}
// Returns a word with these fields, flags 0 and the pins of `pin_bits`. Other bits of `pin_bits`
// are ignored.
PENSTOCK_BOTH constexpr PageEntry make_entry(PageState state, FrameIndex frame, uint32_t generation,
                                             uint64_t pin_bits) {
    return (uint64_t{frame} << kFrameShift) | (uint64_t{generation} << kGenerationShift) |
           (pin_bits & kPinMask) | static_cast<uint64_t>(state);
}

}  // namespace penstock
