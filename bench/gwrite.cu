// The kernels of the gwrite benchmark: sequential and random writes through the page cache.
#include "bench/gwrite_kernels.h"
#include "penstock/device/file.cuh"

namespace penstock::bench {

__global__ void write_stream(WriteJob job) {
    unsigned long long wrong = 0, bytes = 0;
    for (uint64_t offset = blockIdx.x * job.step; offset < job.size;
         offset += gridDim.x * job.step) {
        const int64_t count = gwrite(job.fs, job.file, static_cast<int64_t>(offset),
                                     job.request_size, job.source + offset);
        if (threadIdx.x != 0) continue;
        if (count > 0) bytes += static_cast<unsigned long long>(count);
        wrong += count != static_cast<int64_t>(job.request_size);
    }
    if (threadIdx.x != 0) return;
    atomicAdd(&job.result[0], wrong);
    atomicAdd(&job.result[1], bytes);
}

__global__ void write_random(MixedJob job) {
    unsigned char* buffer = job.buffers + blockIdx.x * uint64_t{4096};
    unsigned long long wrong = 0, bytes = 0;
    for (uint64_t i = blockIdx.x; i < job.count; i += gridDim.x) {
        const uint64_t page = random_page(job.seed, i, job.pages), offset = page * 4096;
        const auto at = static_cast<int64_t>(offset);
        const bool writes = (page & 1) != 0;
        const int64_t count = writes ? gwrite(job.fs, job.file, at, 4096, job.source + offset)
                                     : gread(job.fs, job.file, at, 4096, buffer);
        if (threadIdx.x != 0) continue;
        if (count > 0) bytes += static_cast<unsigned long long>(count);
        wrong += count != 4096;
        if (count == 4096 && !writes) wrong += count_wrong(buffer, offset, 4096);
    }
    if (threadIdx.x != 0) return;
    atomicAdd(&job.result[0], wrong);
    atomicAdd(&job.result[1], bytes);
}

__global__ void count_up(CountJob job) {
    unsigned long long* word = job.words + blockIdx.x;
    unsigned long long wrong = 0;
    for (uint64_t i = blockIdx.x; i < job.count; i += gridDim.x) {
        const auto at = static_cast<int64_t>(i * job.step);
        wrong += gread(job.fs, job.file, at, sizeof *word, word) != int64_t{sizeof *word};
        if (threadIdx.x == 0) ++*word;
        __syncthreads();
        wrong += gwrite(job.fs, job.file, at, sizeof *word, word) != int64_t{sizeof *word};
    }
    if (threadIdx.x == 0) atomicAdd(job.wrong, wrong);
}

__global__ void fill_source(unsigned char* source, uint64_t size, uint64_t run, bool all) {
    auto* words = reinterpret_cast<uint64_t*>(source);
    const uint64_t pages = size / 4096;
    for (uint64_t page = blockIdx.x; page < pages; page += gridDim.x) {
        const uint64_t offset = page * 4096;
        for (unsigned i = threadIdx.x; i < 512 && all; i += blockDim.x)
            words[offset / 8 + i] = stamp(offset + i * 8);
        __syncthreads();
        if (threadIdx.x == 0) {
            const uint64_t checked = offset + checked_word(offset);
            words[checked / 8] = written_word(checked, run);
        }
    }
}

}  // namespace penstock::bench

PENSTOCK_KERNEL(penstock::bench::write_stream)
PENSTOCK_KERNEL(penstock::bench::write_random)
PENSTOCK_KERNEL(penstock::bench::count_up)
PENSTOCK_KERNEL(penstock::bench::fill_source)
