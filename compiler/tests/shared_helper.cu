// A device function that fills its shared variable before it reads it keeps nothing.
// RUN: transform
// CHECK: .shared_size = 0
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__device__ float reduced(float value) {
    __shared__ float part[32];
    part[threadIdx.x] = value;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < 32; ++i) sum += part[i];
    __syncthreads();
    return sum;
}
__global__ void kernel(float* out, int n) {
    float sum = 0;
    for (int i = 0; i < n; ++i) {
        sum += reduced(i);
        yield();
    }
    out[threadIdx.x] = sum;
}
PENSTOCK_KERNEL(kernel)
