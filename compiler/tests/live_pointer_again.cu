// An address in shared or local memory is never saved: it is computed again.
// RUN: transform
// CHECK: load_shared(&tile, sizeof tile, 0)
// CHECK: float* half = tile + 32;
// CHECK: float* second = &mine[1];
// CHECK: const float* row = in + threadIdx.x;
// CHECK: .thread_words = 2
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const float* in, float* out) {
    __shared__ float tile[64];
    float mine[2] = {in[0], in[1]};
    float* half = tile + 32;
    float* second = &mine[1];
    const float* row = in + threadIdx.x;
    tile[threadIdx.x] = *row;
    yield();
    out[threadIdx.x] = half[threadIdx.x] + *second + *row;
}
PENSTOCK_KERNEL(kernel)
