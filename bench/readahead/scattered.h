// Reads whose place depends on the block, in an order that no window follows.
#pragma once

#include <cstdint>

#include "bench/harness/walks.h"

namespace penstock::bench {

inline constexpr unsigned kScatteredReads = 12;  // of each block

// The page that a block reads as its `index`-th.
PENSTOCK_BOTH constexpr uint64_t scattered_page(uint64_t block, uint64_t index) {
    return block * 11 + index % 3 * 1000 + index / 3 * 300;
}

// Every block reads its pages of 4 KiB of the first walk's file.
PENSTOCK_GLOBAL void read_scattered(WalkJob job);

}  // namespace penstock::bench
