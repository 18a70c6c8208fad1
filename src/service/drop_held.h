// The kernel by which the host drops what kernels have left mapped or begun, if it cannot address
// the page table itself.
//
// The registry finds it by its key, so that a program that links only this room works without it.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/kernel.h"

namespace penstock::service {

constexpr const char* kDropHeldKey = "penstock/penstock::service::drop_held";
constexpr unsigned kDropHeldThreads = 512;

// Runs as one block, while no other kernel runs. Adds to `*found` (device memory) the count of
// views << 32 | the count of asynchronous calls.
PENSTOCK_GLOBAL void drop_held(FileSystemState* state, unsigned long long* found);

}  // namespace penstock::service
