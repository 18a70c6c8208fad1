// The kernel by which the host drops what kernels left mapped or begun, where it cannot address the
// page table itself.
//
// Found in the registry by its key, so that programs that link this room alone do without.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/kernel.h"

namespace penstock::service {

constexpr const char* kDropHeldKey = "penstock/penstock::service::drop_held";
constexpr unsigned kDropHeldThreads = 512;

// One block, while no other kernel runs. `*found` (device memory) += views << 32 | asynchronous
// calls that there were.
PENSTOCK_GLOBAL void drop_held(FileSystemState* state, unsigned long long* found);

}  // namespace penstock::service
