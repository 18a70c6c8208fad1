// The kernel of the gread benchmark: sequential requests through the page cache.
#include "bench/gread_kernels.h"
#include "bench/harness/test_file.h"
#include "bench/harness/walks.cuh"
#include "penstock/device/file.cuh"
#include "penstock/kernel.h"

namespace penstock::bench {

namespace {

// The two kernels differ in the least way that the compiler can see: what a lane does between two
// calls is part of what is measured.
template <bool kInPlace>
PENSTOCK_DEVICE void read_all(const ReadJob& job) {
    unsigned char* buffer = job.buffers + blockIdx.x * job.request_size;
    unsigned long long wrong = 0, bytes = 0;
    for (unsigned round = 0; round < job.rounds; ++round) {
        for (uint64_t offset = blockIdx.x * job.request_size; offset < job.size;
             offset += gridDim.x * job.request_size) {
            if (kInPlace) buffer = job.buffers + offset;
            const int64_t count = gread(job.fs, job.file, static_cast<int64_t>(offset),
                                        job.request_size, buffer);
            if (threadIdx.x != 0) continue;
            if (count > 0) bytes += static_cast<unsigned long long>(count);
            if (count != static_cast<int64_t>(job.request_size)) {
                ++wrong;
            } else if (!kInPlace) {
                wrong += count_wrong(buffer, offset, job.request_size);
            }
        }
    }
    if (threadIdx.x != 0) return;
    atomicAdd(&job.result[0], wrong);
    atomicAdd(&job.result[1], bytes);
}

}  // namespace

__global__ void read_stream(ReadJob job) { read_all<false>(job); }

__global__ void read_in_place(ReadJob job) { read_all<true>(job); }

__global__ void read_parts(ReadJob job) {
    const uint64_t requests = job.size / job.request_size;
    const uint64_t end = requests * (blockIdx.x + 1) / gridDim.x;
    unsigned long long wrong = 0, bytes = 0;
    for (uint64_t i = requests * blockIdx.x / gridDim.x; i < end; ++i) {
        const uint64_t offset = i * job.request_size;
        const int64_t count = gread(job.fs, job.file, static_cast<int64_t>(offset),
                                    job.request_size, job.buffers + offset);
        if (threadIdx.x != 0) continue;
        if (count > 0) bytes += static_cast<unsigned long long>(count);
        wrong += count != static_cast<int64_t>(job.request_size);
    }
    if (threadIdx.x != 0) return;
    atomicAdd(&job.result[0], wrong);
    atomicAdd(&job.result[1], bytes);
}

__global__ void read_random(RandomJob job) {
    unsigned long long wrong = 0, bytes = 0;
    for (uint64_t i = blockIdx.x; i < job.count; i += gridDim.x) {
        const uint64_t offset = random_page(job.seed, i, job.pages) * 4096;
        const int64_t count = gread(job.fs, job.file, static_cast<int64_t>(offset), 4096,
                                    job.buffers + i * 4096);
        if (threadIdx.x != 0) continue;
        if (count > 0) bytes += static_cast<unsigned long long>(count);
        wrong += count != 4096;
    }
    if (threadIdx.x != 0) return;
    atomicAdd(&job.result[0], wrong);
    atomicAdd(&job.result[1], bytes);
}

__global__ void check_random(RandomJob job) {
    unsigned long long mine = 0;
    for (uint64_t i = blockIdx.x; i < job.count; i += gridDim.x) {
        const uint64_t offset = random_page(job.seed, i, job.pages) * 4096;
        const auto* words = reinterpret_cast<const uint64_t*>(job.buffers + i * 4096);
        for (unsigned k = threadIdx.x; k < 512; k += blockDim.x)
            mine += words[k] != stamp(offset + k * 8);
    }
    if (mine != 0) atomicAdd(&job.result[0], mine);
}

__global__ void pull_bytes(PullJob job) {
    constexpr uint64_t kPiece = 16 << 10;
    const device::WarpSeat seat = device::warp_seat();
    const device::Warp warp(seat.lane, seat.lanes);
    for (uint64_t at = (blockIdx.x * uint64_t{seat.warps} + seat.warp) * kPiece; at < job.size;
         at += uint64_t{gridDim.x} * seat.warps * kPiece) {
        warp.copy(reinterpret_cast<std::byte*>(job.to + at),
                  reinterpret_cast<const std::byte*>(job.from + at), kPiece);
    }
}

__global__ void advise_file(DeviceFileSystem fs, Descriptor file, Advice advice) {
    (void)gadvise(fs, file, 0, 0, advice);
}

__global__ void check_bytes(const unsigned char* bytes, uint64_t size, unsigned long long* wrong) {
    const auto* words = reinterpret_cast<const uint64_t*>(bytes);
    unsigned long long mine = 0;
    for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < size / 8;
         i += uint64_t{gridDim.x} * blockDim.x) {
        mine += words[i] != stamp(i * 8);
    }
    if (mine != 0) atomicAdd(wrong, mine);
}

}  // namespace penstock::bench

PENSTOCK_KERNEL(penstock::bench::read_stream)
PENSTOCK_KERNEL(penstock::bench::read_in_place)
PENSTOCK_KERNEL(penstock::bench::read_parts)
PENSTOCK_KERNEL(penstock::bench::read_random)
PENSTOCK_KERNEL(penstock::bench::check_random)
PENSTOCK_KERNEL(penstock::bench::pull_bytes)
PENSTOCK_KERNEL(penstock::bench::advise_file)
PENSTOCK_KERNEL(penstock::bench::check_bytes)
PENSTOCK_KERNEL(penstock::bench::walk_file)
PENSTOCK_KERNEL(penstock::bench::walk_files)
PENSTOCK_KERNEL(penstock::bench::forget_file)
