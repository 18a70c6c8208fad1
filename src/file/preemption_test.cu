#include "file/preemption_test.h"
#include "penstock/device/preemption.cuh"
#include "penstock/preemption.h"

namespace penstock::preemption_test {

__device__ inline uint64_t mix(uint64_t hash, uint64_t value) {
    return (hash ^ value) * 0x9e3779b97f4a7c15ull + (hash >> 29);
}

__global__ void fold(DeviceFileSystem fs, Descriptor file, unsigned pieces, uint64_t* out) {
    __shared__ unsigned char bytes[kPiece];
    __shared__ uint64_t sums[kThreads];
    uint64_t hash = threadIdx.x;
    for (unsigned i = 0; i < pieces; ++i) {
        const int64_t offset = (int64_t{blockIdx.x} * pieces + i) * kPiece;
        const int64_t got = gread(fs, file, offset, kPiece, bytes);
        hash = mix(hash, static_cast<uint64_t>(got));
        for (int64_t k = threadIdx.x; k < got; k += blockDim.x) hash = mix(hash, bytes[k]);
        __syncthreads();
    }
    sums[threadIdx.x] = hash;
    __syncthreads();
    if (threadIdx.x != 0) return;
    uint64_t all = 0;
    for (unsigned i = 0; i < blockDim.x; ++i) all = mix(all, sums[i]);
    out[blockIdx.x] = all;
}

__device__ inline void fold__body(DeviceFileSystem fs, Descriptor file, unsigned pieces,
                                  uint64_t* out, preemption::Run& penstock_run) {
    unsigned penstock_at = penstock_run.resumes_at();
    __shared__ unsigned char bytes[kPiece];
    __shared__ uint64_t sums[kThreads];
    uint64_t hash = penstock_at == 0 ? threadIdx.x : penstock_run.load<uint64_t>(0);
    for (unsigned i = penstock_at == 0 ? 0 : penstock_run.load_block<unsigned>(0);
         penstock_at != 0 || i < pieces; ++i) {
        const int64_t offset = (int64_t{penstock_run.block_index().x} * pieces + i) * kPiece;
        preemption::Read penstock_read_1 = penstock_at == 0
                                               ? preemption::begin_read(fs, file, offset, kPiece,
                                                                        bytes)
                                               : penstock_run.load_block<preemption::Read>(1);
        if (penstock_at == 1) {
            penstock_at = 0;
        } else if (penstock_run.leaves(preemption::until(penstock_read_1))) {
            penstock_run.save(0, hash);
            penstock_run.save_block(0, i);
            penstock_run.save_block(1, penstock_read_1);
            penstock_run.leave(1);
            return;
        }
        const int64_t got = preemption::end_read(penstock_read_1, bytes);
        hash = mix(hash, static_cast<uint64_t>(got));
        for (int64_t k = threadIdx.x; k < got; k += blockDim.x) hash = mix(hash, bytes[k]);
        __syncthreads();
    }
    sums[threadIdx.x] = hash;
    __syncthreads();
    if (threadIdx.x != 0) return;
    uint64_t all = 0;
    for (unsigned i = 0; i < blockDim.x; ++i) all = mix(all, sums[i]);
    out[penstock_run.block_index().x] = all;
}

__global__ void fold__preemptible(DeviceFileSystem fs, Descriptor file, unsigned pieces,
                                  uint64_t* out, preemption::Launch penstock_launch) {
    preemption::OneRun penstock_run(penstock_launch);
    while (penstock_run.begin()) {
        fold__body(fs, file, pieces, out, penstock_run);
        if (penstock_run.ends()) break;
    }
}

__global__ void chain(uint64_t* flags, uint64_t value, uint64_t* order) {
    if (blockIdx.x + 1 == gridDim.x && threadIdx.x == 0)
        device::DeviceWords::store(flags[0], value, site::kComplete);
    yield_until(&flags[blockIdx.x], value);
    if (threadIdx.x == 0) {
        order[blockIdx.x] = blockIdx.x == 0 ? 1 : order[blockIdx.x - 1] + 1;
        device::DeviceWords::store(flags[blockIdx.x + 1], value, site::kComplete);
    }
}

__device__ inline void chain__body(uint64_t* flags, uint64_t value, uint64_t* order,
                                   preemption::Run& penstock_run) {
    unsigned penstock_at = penstock_run.resumes_at();
    const unsigned block = penstock_run.block_index().x;
    if (penstock_at == 0) {
        if (block + 1 == penstock_run.grid().x && threadIdx.x == 0)
            device::DeviceWords::store(flags[0], value, site::kComplete);
    }
    if (penstock_at == 1) {
        penstock_at = 0;
    } else if (penstock_run.leaves(preemption::until_word(&flags[block], value))) {
        penstock_run.leave(1);
        return;
    }
    if (threadIdx.x == 0) {
        order[block] = block == 0 ? 1 : order[block - 1] + 1;
        device::DeviceWords::store(flags[block + 1], value, site::kComplete);
    }
}

__global__ void chain__preemptible(uint64_t* flags, uint64_t value, uint64_t* order,
                                   preemption::Launch penstock_launch) {
    preemption::Run penstock_run(penstock_launch);
    while (penstock_run.begin()) {
        chain__body(flags, value, order, penstock_run);
        penstock_run.end();
    }
}

}  // namespace penstock::preemption_test

PENSTOCK_KERNEL(penstock::preemption_test::fold)
PENSTOCK_KERNEL(penstock::preemption_test::chain)
PENSTOCK_PREEMPTIBLE((penstock::preemption_test::fold),
                     (penstock::preemption_test::fold__preemptible),
                     (penstock::PreemptionFrame{
                         .thread_words = 2, .block_words = 7, .point_count = 1}))
PENSTOCK_PREEMPTIBLE((penstock::preemption_test::chain),
                     (penstock::preemption_test::chain__preemptible),
                     (penstock::PreemptionFrame{.point_count = 1}))
