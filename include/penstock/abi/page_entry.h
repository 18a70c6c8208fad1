// One 64-bit word for each page of a file: where it is, in which state, who holds it.
//
//   bit  0..2   state        PageState
//   bit  3      dirty        frame differs from the file, or is being written back: keeps its frame
//   bit  4      touched      used again since it was filled: its second chance with CLOCK
//   bit  5..18  pins         teams and views that hold the frame, or look; any state
//   bit 19..35  generation   number of the fill; completions[frame] has the same once it is over
//   bit 36..63  frame        frame that holds the page; meaningful in FETCHING, VALID, FAILED
//
// Lies in a leaf of the page table, in device memory. Written and read by GPU threads (device
// scope), and on the CPU backend by the host when it drops a file's pages, by the protocol in
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
//   FETCHING -> FAILED         [publish: an errno has]
//   FAILED -> FETCHING         [claim_again: same frame]
//   VALID, FAILED -> EMPTY     [evict: clean, zero pins]
//   EMPTY -> RETIRED           [retire: its leaf is being given to other pages]
//   RETIRED -> EMPTY           [restore]
//   EMPTY -> EMPTY             [renew: what was read for it before is not to be taken]
// EMPTY keeps frame and generation of its last fill: who finds the same word again knows that the
// page was not filled in between.
// EVICTING is not entered: a page that is written back stays VALID (device/dirty_page.cuh).
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
// A word with these fields, its flags 0, and the pins of `pin_bits`, of which other bits are
// ignored.
PENSTOCK_BOTH constexpr PageEntry make_entry(PageState state, FrameIndex frame, uint32_t generation,
                                             uint64_t pin_bits) {
    return (uint64_t{frame} << kFrameShift) | (uint64_t{generation} << kGenerationShift) |
           (pin_bits & kPinMask) | static_cast<uint64_t>(state);
}

}  // namespace penstock
