// SRAD: removes speckle from an image by diffusion that stops at edges.
//
// After the benchmark of that name in Rodinia (Che et al., IISWC 2009). The sums can read the image
// from a file, tile by tile into shared memory: at these points the thread's two sums are live, and
// the tile is not.
#include "penstock/device/file.cuh"
#include "penstock/kernel.h"
#include "preemption/srad_kernels.h"

namespace penstock::workloads {
namespace {

// A cell of an image, outside of which the cells at its border go on.
struct Cell {
    int row, column;

    __device__ Cell moved(const SradJob& job, int down, int right) const {
        const int rows = job.tile_rows * kSradTile, columns = job.tile_columns * kSradTile;
        return {min(max(row + down, 0), rows - 1), min(max(column + right, 0), columns - 1)};
    }
    __device__ unsigned index(const SradJob& job) const {
        const int tile = row / kSradTile * job.tile_columns + column / kSradTile;
        return static_cast<unsigned>((tile * kSradTile + row % kSradTile) * kSradTile +
                                     column % kSradTile);
    }
};

__device__ Cell cell_of_thread(const SradJob& job, unsigned tile) {
    const int row = static_cast<int>(tile) / job.tile_columns;
    const int column = static_cast<int>(tile) % job.tile_columns;
    return {row * kSradTile + static_cast<int>(threadIdx.y),
            column * kSradTile + static_cast<int>(threadIdx.x)};
}

__device__ unsigned tiles_per_block(const SradJob& job) {
    return static_cast<unsigned>(job.tile_rows * job.tile_columns) / job.blocks;
}

// Adds up two values of each thread of the block, by halves. The first thread gets the sums.
template <unsigned kThreads>
__device__ float2 sum_of_block(float2 own, unsigned thread) {
    __shared__ float2 sums[kThreads];
    sums[thread] = own;
    for (unsigned half = kThreads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (thread < half) {
            sums[thread].x += sums[thread + half].x;
            sums[thread].y += sums[thread + half].y;
        }
    }
    return sums[thread];
}

template <bool kFromFile>
__global__ void srad_sums(SradJob job) {
    __shared__ float tile[kSradTile][kSradTile];
    const unsigned count = tiles_per_block(job);
    const unsigned thread = threadIdx.y * kSradTile + threadIdx.x;
    float2 sums = make_float2(0, 0);
    for (unsigned i = 0; i < count; ++i) {
        const unsigned index = blockIdx.x * count + i;
        if constexpr (kFromFile) {
            __syncthreads();  // all threads have used the tile before
#pragma preempt
            const int64_t got = gread(job.fs, job.file, int64_t{index} * int64_t{sizeof tile},
                                      sizeof tile, tile);
            if (thread == 0 && got != static_cast<int64_t>(sizeof tile))
                atomicAdd(job.failures, 1ull);
            job.image[index * kSradThreads + thread] = tile[threadIdx.y][threadIdx.x];
        } else {
            tile[threadIdx.y][threadIdx.x] = job.image[index * kSradThreads + thread];
        }
        const float cell = tile[threadIdx.y][threadIdx.x];
        sums.x += cell;
        sums.y += times(cell, cell);
    }
    const float2 all = sum_of_block<kSradThreads>(sums, thread);
    if (thread == 0) {
        job.partial_sums[2 * blockIdx.x] = all.x;
        job.partial_sums[2 * blockIdx.x + 1] = all.y;
    }
}

__global__ void srad_speckle_of_image(SradJob job) {
    float2 sums = make_float2(0, 0);
    for (unsigned block = threadIdx.x; block < job.blocks; block += kSradThreads) {
        sums.x += job.partial_sums[2 * block];
        sums.y += job.partial_sums[2 * block + 1];
    }
    const float2 all = sum_of_block<kSradThreads>(sums, threadIdx.x);
    const int tiles = job.tile_rows * job.tile_columns;
    if (threadIdx.x == 0)
        *job.speckle = srad_speckle(all.x, all.y, static_cast<float>(tiles * int{kSradThreads}));
}

__global__ void srad_coefficients(SradJob job) {
    __shared__ float tile[kSradTile + 2][kSradTile + 2];  // with the cells round it
    const float speckle = *job.speckle;
    const unsigned count = tiles_per_block(job);
    const int row = static_cast<int>(threadIdx.y) + 1, column = static_cast<int>(threadIdx.x) + 1;
    for (unsigned i = 0; i < count; ++i) {
        const Cell cell = cell_of_thread(job, blockIdx.x * count + i);
        const auto load = [&](int down, int right) {
            tile[row + down][column + right] = job.image[cell.moved(job, down, right).index(job)];
        };
        load(0, 0);
        if (row == 1) load(-1, 0);
        if (row == kSradTile) load(1, 0);
        if (column == 1) load(0, -1);
        if (column == kSradTile) load(0, 1);
        __syncthreads();
        const float own = tile[row][column];
        const SradSlopes slopes{tile[row - 1][column] - own, tile[row + 1][column] - own,
                                tile[row][column - 1] - own, tile[row][column + 1] - own};
        const unsigned index = cell.index(job);
        job.slopes[index] = slopes;
        job.coefficient[index] = srad_coefficient(own, slopes, speckle);
        __syncthreads();
    }
}

__global__ void srad_update(SradJob job) {
    __shared__ float tile[kSradTile + 1][kSradTile + 1];  // with the cells below and to the right
    const unsigned count = tiles_per_block(job);
    const unsigned row = threadIdx.y, column = threadIdx.x;
    for (unsigned i = 0; i < count; ++i) {
        const Cell cell = cell_of_thread(job, blockIdx.x * count + i);
        const unsigned index = cell.index(job);
        tile[row][column] = job.coefficient[index];
        if (row == kSradTile - 1)
            tile[row + 1][column] = job.coefficient[cell.moved(job, 1, 0).index(job)];
        if (column == kSradTile - 1)
            tile[row][column + 1] = job.coefficient[cell.moved(job, 0, 1).index(job)];
        __syncthreads();
        job.image[index] = srad_diffused(job.image[index], job.slopes[index], tile[row][column],
                                         tile[row + 1][column], tile[row][column + 1], job.lambda);
        __syncthreads();
    }
}

}  // namespace

PENSTOCK_KERNEL(srad_sums<false>)
PENSTOCK_KERNEL(srad_sums<true>)
PENSTOCK_KERNEL(srad_speckle_of_image)
PENSTOCK_KERNEL(srad_coefficients)
PENSTOCK_KERNEL(srad_update)

#ifndef __NVCC__
Status launch_srad_sums(Stream& stream, bool reads_file, const SradJob& job) {
    const LaunchShape shape{{job.blocks}, {kSradTile, kSradTile}};
    if (reads_file) return launch(stream, shape, srad_sums<true>, job);
    return launch(stream, shape, srad_sums<false>, job);
}

Status launch_srad_speckle(Stream& stream, const SradJob& job) {
    return launch(stream, {{1}, {kSradThreads}}, srad_speckle_of_image, job);
}

Status launch_srad_coefficients(Stream& stream, const SradJob& job) {
    return launch(stream, {{job.blocks}, {kSradTile, kSradTile}}, srad_coefficients, job);
}

Status launch_srad_update(Stream& stream, const SradJob& job) {
    return launch(stream, {{job.blocks}, {kSradTile, kSradTile}}, srad_update, job);
}
#endif

}  // namespace penstock::workloads
