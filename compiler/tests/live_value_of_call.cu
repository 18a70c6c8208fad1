// A class without pointers that a call with pointers returns is a value like others.
// RUN: transform without-g++
// CHECK: penstock_run.save(0, sums);
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

struct Sums {
    float rows[2];
};

__device__ Sums add(const float* from, Sums sums) {
    sums.rows[0] += from[0];
    sums.rows[1] += from[1];
    return sums;
}

__global__ void kernel(float* out) {
    extern __shared__ float tile[];
    Sums sums{};
    for (int i = 0; i < 4; ++i) {
        tile[threadIdx.x] = static_cast<float>(i);
        __syncthreads();
        sums = add(tile, sums);
        yield();
    }
    out[threadIdx.x] = sums.rows[0] + sums.rows[1];
}
PENSTOCK_KERNEL(kernel)
