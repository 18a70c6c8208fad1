// Kernels of the tests, in the form that `penstock preempt` makes, written by hand.
#pragma once

#include <cstdint>

#include "penstock/device/handle.h"
#include "penstock/kernel.h"

namespace penstock::preemption_test {

constexpr unsigned kPiece = 4096;  // bytes of one read
constexpr unsigned kThreads = 64;  // of a block

// Folds `pieces` pieces of a file for each block: block b reads pieces b * pieces on, each with a
// point. out[b] gets a hash that depends on every byte and on the order.
PENSTOCK_GLOBAL void fold(DeviceFileSystem fs, Descriptor file, unsigned pieces, uint64_t* out);

// Block b waits until flags[b] is `value`, then sets flags[b + 1]. The last block of the grid sets
// flags[0] at the start.
PENSTOCK_GLOBAL void chain(uint64_t* flags, uint64_t value, uint64_t* order);

}  // namespace penstock::preemption_test
