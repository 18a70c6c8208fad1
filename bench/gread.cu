// The kernel of the gread benchmark: sequential requests through the page cache.
#include "bench/gread_kernels.h"
#include "bench/harness/test_file.h"
#include "penstock/device/file.cuh"
#include "penstock/kernel.h"

namespace penstock::bench {

__global__ void read_stream(ReadJob job) {
    unsigned char* buffer = job.buffers + blockIdx.x * job.request_size;
    unsigned long long wrong = 0, bytes = 0;
    for (unsigned round = 0; round < job.rounds; ++round) {
        for (uint64_t offset = blockIdx.x * job.request_size; offset < job.size;
             offset += gridDim.x * job.request_size) {
            const int64_t count = gread(job.fs, job.file, static_cast<int64_t>(offset),
                                        job.request_size, buffer);
            if (threadIdx.x != 0) continue;
            if (count > 0) bytes += static_cast<unsigned long long>(count);
            wrong += count == static_cast<int64_t>(job.request_size)
                         ? count_wrong(buffer, offset, job.request_size)
                         : 1;
        }
    }
    if (threadIdx.x != 0) return;
    atomicAdd(&job.result[0], wrong);
    atomicAdd(&job.result[1], bytes);
}

}  // namespace penstock::bench

PENSTOCK_KERNEL(penstock::bench::read_stream)
