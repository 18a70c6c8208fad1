// The kernels of the readahead benchmark.
#include "bench/harness/walks.cuh"
#include "bench/readahead/scattered.h"
#include "penstock/kernel.h"

namespace penstock::bench {

__global__ void read_scattered(WalkJob job) {
    unsigned char* buffer = job.buffers + blockIdx.x * job.buffer_size;
    unsigned long long wrong = 0, bytes = 0;
    for (unsigned i = 0; i < kScatteredReads; ++i) {
        const uint64_t offset = scattered_page(blockIdx.x, i) * 4096;
        const int64_t count = gread(job.fs, job.walks[0].file, static_cast<int64_t>(offset), 4096,
                                    buffer);
        if (threadIdx.x != 0) continue;
        if (count > 0) bytes += static_cast<unsigned long long>(count);
        wrong += count == 4096 ? count_wrong(buffer, offset, 4096) : 1;
    }
    if (threadIdx.x != 0) return;
    atomicAdd(&job.result[0], wrong);
    atomicAdd(&job.result[1], bytes);
}

}  // namespace penstock::bench

PENSTOCK_KERNEL(penstock::bench::walk_file)
PENSTOCK_KERNEL(penstock::bench::walk_files)
PENSTOCK_KERNEL(penstock::bench::forget_file)
PENSTOCK_KERNEL(penstock::bench::read_scattered)
