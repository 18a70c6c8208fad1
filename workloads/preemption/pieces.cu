// Blocks that read a piece of a file, compute on it, and read the next. Every read is a point where
// the block may leave; one sum of each GPU thread is live there.
#include "penstock/device/file.cuh"
#include "penstock/kernel.h"
#include "penstock/preemption.h"
#include "preemption/pieces_kernels.h"

namespace penstock::workloads {
namespace {

__device__ void count_failed_read(const PiecesJob& job, int64_t got) {
    if (threadIdx.x != 0 || got == static_cast<int64_t>(job.piece_size)) return;
    atomicAdd(job.failures, 1ull);
}

__device__ unsigned place_of_block() { return device::Block::place() / limits::kWarpsPerBlock; }

__device__ void note_begin(const PiecesJob& job, uint64_t piece) {
    if (job.times == nullptr || threadIdx.x != 0) return;
    job.times[piece].begun_ns = device::now_ns();
    job.times[piece].begun_place = place_of_block();
}

__device__ void note_bytes(const PiecesJob& job, uint64_t piece) {
    if (job.times == nullptr || threadIdx.x != 0) return;
    job.times[piece].got_ns = device::now_ns();
    job.times[piece].place = place_of_block();
}

// All threads of the block call.
__device__ void note_end(const PiecesJob& job, uint64_t piece) {
    if (job.times == nullptr) return;
    __syncthreads();  // all have computed
    if (threadIdx.x == 0) job.times[piece].done_ns = device::now_ns();
}

// What a GPU thread computes on a piece. A separate function, so that it is the same code in both
// forms of the kernel.
PENSTOCK_NOINLINE __device__ uint64_t compute_piece(const PiecesJob& job, uint64_t piece,
                                                    uint64_t sum) {
    const auto* words = reinterpret_cast<const uint64_t*>(job.bytes + piece * job.piece_size);
    for (unsigned i = threadIdx.x; i < job.piece_size / sizeof(uint64_t); i += kPiecesThreads)
        sum = sum * kPiecesFactor + words[i];
    for (unsigned i = 0; i < job.rounds; ++i) sum = pieces_round(sum);
    return sum;
}

__global__ void work_on_pieces(PiecesJob job) {
    uint64_t sum = threadIdx.x;
    for (unsigned i = 0; i < job.pieces; ++i) {
        const uint64_t piece = uint64_t{blockIdx.x} * job.pieces + i;
        note_begin(job, piece);
        if (job.reads) {
            int64_t got = 0;
#pragma preempt
            got = gread(job.fs, job.file, static_cast<int64_t>(piece * job.piece_size),
                        job.piece_size, job.bytes + piece * job.piece_size);
            count_failed_read(job, got);
        }
        note_bytes(job, piece);
        if (job.computes) sum = compute_piece(job, piece, sum);
        note_end(job, piece);
    }
    if (job.computes) atomicAdd(&job.sums[blockIdx.x], static_cast<unsigned long long>(sum));
}

}  // namespace

PENSTOCK_KERNEL(work_on_pieces)

#ifndef __NVCC__
Status launch_pieces(Stream& stream, unsigned blocks, const PiecesJob& job) {
    return launch(stream, {{blocks}, {kPiecesThreads}}, work_on_pieces, job);
}
#endif

}  // namespace penstock::workloads
