#include "service/drop_pages.h"

#include "penstock/device/page_table.cuh"

namespace penstock::service {

__global__ void drop_pages(FileSystemState* state, uint64_t first, uint64_t count,
                           unsigned long long* kept) {
    for (uint64_t i = threadIdx.x; i < count; i += blockDim.x) {
        if (!device::drop_leaf(*state, first + i)) atomicAdd(kept, 1ULL);
    }
}

}  // namespace penstock::service

PENSTOCK_KERNEL(penstock::service::drop_pages)
