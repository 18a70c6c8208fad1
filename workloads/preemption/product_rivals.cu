// The matrix product as programs write it that do not let blocks leave: blocks that look for their
// bytes and sleep, and one kernel that stays and takes tasks from a queue.
#ifndef __NVCC__
#include <chrono>
#include <thread>
#endif

#include "penstock/kernel.h"
#include "preemption/product_tile.cuh"

namespace penstock::workloads {
namespace {

constexpr unsigned kAhead = 4;  // reads that a block of the persistent kernel begins ahead
static_assert(kAhead <= limits::kAsyncCallsMax);

// Sleeps of a block that looks for its bytes: each is twice as long as the one before.
constexpr unsigned kSleepNsMin = 1000, kSleepNsMax = 1'000'000;

__device__ inline void sleep_for_ns(unsigned ns) {
#ifdef __NVCC__
    __nanosleep(ns);
#else
    std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
#endif
}

// A gread whose wait is the kernel's own. All threads of the block call.
__device__ int64_t read_with_backoff(const ProductJob& job, uint64_t offset, uint64_t size,
                                     float* to) {
    const auto from = static_cast<int64_t>(offset);
    const AsyncHandle handle = gread_async(job.fs, job.file, from, size, to);
    if (handle == -device::kErrorAgain) return gread(job.fs, job.file, from, size, to);
    if (handle < 0) return handle;
    FileSystemState* const system = job.fs.state;
    device::Block{}.once([system, handle]() -> int64_t {
        uint64_t checked = 0;
        for (unsigned pause = kSleepNsMin;
             device::first_missing(*system, handle, checked).word != nullptr;
             pause = pause < kSleepNsMax / 2 ? 2 * pause : kSleepNsMax)
            sleep_for_ns(pause);
        return 0;
    });
    return gwait(job.fs, handle);
}

template <int kTile>
__global__ void product_with_backoff(ProductJob job, unsigned pieces) {
    const unsigned depth = job.order / pieces;
    const uint64_t piece_count = uint64_t{depth} * 2 * kTile;
    const uint64_t piece_size = piece_count * sizeof(float);
    const uint64_t first = (uint64_t{blockIdx.y} * gridDim.x + blockIdx.x) * pieces;
    Sums sums{};
    for (unsigned piece = 0; piece < pieces; ++piece) {
        float* panels = job.panels + (first + piece) * piece_count;
        count_failure(job, read_with_backoff(job, (first + piece) * piece_size, piece_size, panels),
                      piece_size);
        for (unsigned pass = 0; pass < job.repeat; ++pass)
            sums = multiply<kTile>(panels, depth, sums);
    }
    store<kTile>(job, blockIdx.y, blockIdx.x, sums);
}

// The tiles of all jobs, in the order of the jobs, as a queue of pieces to read.
struct Tasks {
    const ProductJob* jobs;
    unsigned job_count, pieces;
    unsigned long long* next;  // the first tile that no block has taken
};

struct Piece {
    const ProductJob* job;
    unsigned tile, piece;
};

template <int kTile>
__device__ uint64_t piece_floats(const Piece& at, unsigned pieces) {
    return uint64_t{at.job->order / pieces} * 2 * kTile;
}

// Takes the next tile. All threads of the block call. Returns false if there is none.
template <int kTile>
__device__ bool take_tile(const Tasks& tasks, Piece* piece) {
    __shared__ unsigned long long taken;
    __syncthreads();
    if (threadIdx.x + threadIdx.y == 0) taken = atomicAdd(tasks.next, 1ull);
    __syncthreads();
    unsigned long long number = taken;
    for (unsigned i = 0; i < tasks.job_count; ++i) {
        const unsigned tiles = tasks.jobs[i].order / kTile;
        if (number < uint64_t{tiles} * tiles) {
            *piece = {&tasks.jobs[i], static_cast<unsigned>(number), 0};
            return true;
        }
        number -= uint64_t{tiles} * tiles;
    }
    return false;
}

template <int kTile>
__device__ void begin_piece(const Tasks& tasks, const Piece& at, AsyncHandle* handle) {
    const uint64_t count = piece_floats<kTile>(at, tasks.pieces);
    const uint64_t first = (uint64_t{at.tile} * tasks.pieces + at.piece) * count;
    *handle = gread_async(at.job->fs, at.job->file, static_cast<int64_t>(first * sizeof(float)),
                          count * sizeof(float), at.job->panels + first);
}

// Waits for a piece and adds its products.
template <int kTile>
__device__ Sums end_piece(const Tasks& tasks, const Piece& at, AsyncHandle handle, Sums sums) {
    const ProductJob& job = *at.job;
    const uint64_t count = piece_floats<kTile>(at, tasks.pieces);
    const uint64_t first = (uint64_t{at.tile} * tasks.pieces + at.piece) * count;
    float* const panels = job.panels + first;
    const int64_t got = handle >= 0
                            ? gwait(job.fs, handle)
                            : gread(job.fs, job.file, static_cast<int64_t>(first * sizeof(float)),
                                    count * sizeof(float), panels);
    count_failure(job, got, count * sizeof(float));
    if (at.piece == 0) sums = {};
    for (unsigned pass = 0; pass < job.repeat; ++pass)
        sums = multiply<kTile>(panels, job.order / tasks.pieces, sums);
    const unsigned tiles = job.order / kTile;
    if (at.piece + 1 == tasks.pieces) store<kTile>(job, at.tile / tiles, at.tile % tiles, sums);
    return sums;
}

template <int kTile>
__global__ void product_persistent(Tasks tasks) {
    Piece begun[kAhead] = {};
    AsyncHandle handles[kAhead] = {};
    Piece next{};
    bool more = take_tile<kTile>(tasks, &next);
    Sums sums{};
    unsigned head = 0, count = 0;
    while (more || count > 0) {
        while (more && count < kAhead) {
            const unsigned slot = (head + count++) % kAhead;
            begun[slot] = next;
            begin_piece<kTile>(tasks, next, &handles[slot]);
            if (++next.piece == tasks.pieces) more = take_tile<kTile>(tasks, &next);
        }
        sums = end_piece<kTile>(tasks, begun[head], handles[head], sums);
        head = (head + 1) % kAhead;
        --count;
    }
}

}  // namespace

PENSTOCK_KERNEL(product_with_backoff<32>)
PENSTOCK_KERNEL(product_with_backoff<64>)
PENSTOCK_KERNEL(product_persistent<32>)
PENSTOCK_KERNEL(product_persistent<64>)

#ifndef __NVCC__
namespace {

constexpr unsigned block_side(unsigned tile) { return tile / 4; }

}  // namespace

Status launch_product_with_backoff(Stream& stream, ProductForm form, unsigned tile,
                                   const ProductJob& job) {
    const unsigned tiles = job.order / tile;
    const LaunchShape shape{{tiles, tiles}, {block_side(tile), block_side(tile)}};
    const auto kernel = tile == 32 ? product_with_backoff<32> : product_with_backoff<64>;
    return launch(stream, shape, kernel, job, pieces_of(form));
}

Status launch_persistent_product(Stream& stream, unsigned blocks, ProductForm form, unsigned tile,
                                 const ProductJob* jobs, unsigned job_count,
                                 unsigned long long* next) {
    const LaunchShape shape{{blocks}, {block_side(tile), block_side(tile)}};
    const auto kernel = tile == 32 ? product_persistent<32> : product_persistent<64>;
    return launch(stream, shape, kernel, Tasks{jobs, job_count, pieces_of(form), next});
}
#endif

}  // namespace penstock::workloads
