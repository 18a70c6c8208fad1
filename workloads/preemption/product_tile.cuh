// What a block of a matrix product computes of its tile. A GPU thread computes four by four
// elements of it.
#pragma once

#include "penstock/device/file.cuh"
#include "preemption/product_kernels.h"

namespace penstock::workloads {

__device__ inline void count_failure(const ProductJob& job, int64_t got, uint64_t size) {
    if (threadIdx.x + threadIdx.y != 0 || got == static_cast<int64_t>(size)) return;
    atomicAdd(job.failures, 1ull);
}

// What a GPU thread computes: four rows of four neighbours.
struct Sums {
    float4 rows[4];
};

__device__ inline void add_products(float4& sum, float a, const float4& b) {
    sum.x += a * b.x;
    sum.y += a * b.y;
    sum.z += a * b.z;
    sum.w += a * b.w;
}

// Adds the products of `depth` rows of a record to the thread's sums.
template <int kTile>
__device__ Sums multiply(const float* panels, unsigned depth, Sums sums) {
    constexpr unsigned kStep = 2 * kTile / 4;  // of a row of the record, in float4
    const auto* left = reinterpret_cast<const float4*>(panels) + threadIdx.y;
    const auto* right = reinterpret_cast<const float4*>(panels + kTile) + threadIdx.x;
    for (unsigned k = 0; k < depth; ++k) {
        const float4 a = left[k * kStep];
        const float4 b = right[k * kStep];
        add_products(sums.rows[0], a.x, b);
        add_products(sums.rows[1], a.y, b);
        add_products(sums.rows[2], a.z, b);
        add_products(sums.rows[3], a.w, b);
    }
    return sums;
}

template <int kTile>
__device__ void store(const ProductJob& job, unsigned tile_row, unsigned tile_column,
                      const Sums& sums) {
    const uint64_t row = tile_row * kTile + 4 * threadIdx.y;
    const uint64_t column = tile_column * kTile + 4 * threadIdx.x;
    for (unsigned i = 0; i < 4; ++i)
        *reinterpret_cast<float4*>(job.result + (row + i) * job.order + column) = sums.rows[i];
}

}  // namespace penstock::workloads
