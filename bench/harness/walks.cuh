// Kernels that go through files in streams of reads. For one .cu file of a program, which lists
// them with PENSTOCK_KERNEL.
#pragma once

#include "bench/harness/test_file.h"
#include "bench/harness/walks.h"
#include "penstock/device/file.cuh"

namespace penstock::bench {

// A stream of reads and nothing else: what a lane does between two calls is part of what is
// measured.
__global__ void walk_file(WalkJob job) {
    const Walk& walk = job.walks[0];
    unsigned char* buffer = job.buffers + blockIdx.x * job.buffer_size;
    unsigned long long wrong = 0, bytes = 0;
    int64_t offset = static_cast<int64_t>(blockIdx.x * walk.share + walk.first);
    for (uint64_t left = walk.count; left > 0; --left, offset += walk.step) {
        const int64_t count = gread(job.fs, walk.file, offset, walk.size, buffer);
        if (threadIdx.x != 0) continue;
        bytes += static_cast<unsigned long long>(count);
        wrong += count_wrong(buffer, static_cast<uint64_t>(offset), walk.size);
    }
    if (threadIdx.x != 0) return;
    atomicAdd(&job.result[0], wrong);
    atomicAdd(&job.result[1], bytes);
}

__global__ void forget_file(DeviceFileSystem fs, Descriptor file) {
    (void)gadvise(fs, file, 0, 0, Advice::kDontNeed);
}

__global__ void walk_files(WalkJob job) {
    unsigned char* buffer = job.buffers + blockIdx.x * job.buffer_size;
    unsigned long long wrong = 0, bytes = 0;
    const uint64_t most = job.walks[0].count > job.walks[1].count ? job.walks[0].count
                                                                  : job.walks[1].count;
    for (uint64_t i = 0; i < most; ++i) {
        for (const Walk& walk : job.walks) {
            if (i >= walk.count) continue;
            uint64_t offset = blockIdx.x * walk.share + walk.first +
                              i * static_cast<uint64_t>(walk.step);
            if (walk.random_pages > 0) {
                const uint64_t draw = stamp(walk.seed + blockIdx.x * walk.count + i);
                offset = draw % walk.random_pages * 4096;
            }
            const int64_t count = gread(job.fs, walk.file, static_cast<int64_t>(offset), walk.size,
                                        buffer);
            if (threadIdx.x != 0) continue;
            if (count > 0) bytes += static_cast<unsigned long long>(count);
            wrong += count == static_cast<int64_t>(walk.size)
                         ? count_wrong(buffer, offset, walk.size)
                         : 1;
        }
    }
    if (threadIdx.x != 0) return;
    atomicAdd(&job.result[0], wrong);
    atomicAdd(&job.result[1], bytes);
}

}  // namespace penstock::bench
