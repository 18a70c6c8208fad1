// The kernels of the benchmark of seed 000: streams of reads, and requests without a page cache.
#include "bench/harness/walks.cuh"
#include "bench/seed000/posting.h"
#include "penstock/device/wait.cuh"
#include "penstock/kernel.h"

namespace penstock::bench {

__global__ void post_requests(PostJob job) {
    uint64_t& slot = job.slots[blockIdx.x % job.slot_count * kSlotWords];
    const unsigned char* buffer = job.buffers + blockIdx.x * job.request_size;
    unsigned long long wrong = 0;
    for (uint64_t i = 0; i < job.count; ++i) {
        const uint64_t request = blockIdx.x * job.count + i;
        device::SystemWords::store(slot, request + 1, site::kSubmit);
        device::Wait wait(*job.fs.state);
        int error = 0;
        while (error == 0 && device::SystemWords::load(slot, site::kCompletion) == request + 1) {
            error = wait.step(&slot, request + 1);
        }
        if (error != 0) {
            ++wrong;
            break;
        }
        if (job.request_size > 0)
            wrong += count_wrong(buffer, request * job.request_size, job.request_size);
    }
    atomicAdd(&job.result[0], wrong);
    atomicAdd(&job.result[1], job.count);
}

}  // namespace penstock::bench

PENSTOCK_KERNEL(penstock::bench::walk_file)
PENSTOCK_KERNEL(penstock::bench::walk_files)
PENSTOCK_KERNEL(penstock::bench::forget_file)
PENSTOCK_KERNEL(penstock::bench::post_requests)
