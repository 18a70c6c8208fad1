// One 64-bit word for each page of a file: where it is, in which state, who holds it.
//
//   bit  0..2   state        PageState
//   bit  3      dirty        frame differs from the file (set with writes; always 0 while files are read only)
//   bit  4      touched      used again since it was filled: its second chance when CLOCK comes by
//   bit  5..18  pins         teams and views that hold the frame; may be non-zero in any state
//   bit 19..35  generation   number of the fill; equals the generation in completions[frame] once it is complete
//   bit 36..63  frame        frame that holds the page; meaningful in FETCHING, VALID, FAILED
//
// Lies in a leaf of the page table, in device memory; written by GPU threads only (device scope), by the
// protocol in device/page_cache.cuh. The initial word is 0: EMPTY, no pins.
#pragma once

#include <cstdint>

#include "penstock/abi/limits.h"
#include "penstock/abi/qualifiers.h"

namespace penstock {

using PageEntry = uint64_t;
using FrameIndex = uint32_t;
using PageIndex = uint64_t;

// EMPTY -> FETCHING [claim]             FETCHING -> VALID  [publish, bytes arrived]
// FETCHING -> FAILED [publish, errno]   FAILED -> FETCHING [claim again, same frame]
// VALID, FAILED -> EMPTY [evict]        EMPTY -> RETIRED   [retire: its leaf is being given to other pages]
// RETIRED -> EMPTY [restore]            EVICTING is kept for pages that are written back first.
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
// The word without its pins, with state and flags replaced; pins are kept by the caller (see the protocol).
PENSTOCK_BOTH constexpr PageEntry make_entry(PageState state, FrameIndex frame, uint32_t generation,
                                             uint64_t pin_bits) {
    return (uint64_t{frame} << kFrameShift) | (uint64_t{generation} << kGenerationShift) |
           (pin_bits & kPinMask) | static_cast<uint64_t>(state);
}

}  // namespace penstock
