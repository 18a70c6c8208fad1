// Shared memory has no content before its first write, and is not saved there.
// RUN: transform
// CHECK: if (penstock_at == 1)
// CHECK: leave(1);
// CHECK: save_shared(&tile, sizeof tile, 0);
// CHECK: leave(2);
// CHECK-NOT: save_shared(&tile, sizeof tile, 0); penstock_run.leave(1);
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const float* in, float* out) {
    __shared__ float tile[64];
    yield();
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    yield();
    out[threadIdx.x] = tile[threadIdx.x ^ 1];
}
PENSTOCK_KERNEL(kernel)
