// All dynamic shared memory is saved.
// RUN: transform without-g++
// CHECK: if (penstock_at != 0) { penstock_run.load_dynamic_shared(0); __syncthreads(); }
// CHECK: save_dynamic_shared(0)
// CHECK: save_dynamic_shared(0)
// CHECK: .dynamic_shared = 1
// CHECK: .dynamic_shared = 1
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const float* in, float* out) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    yield();
    out[threadIdx.x] = tile[threadIdx.x ^ 1];
}
__global__ void macro(const float* in, float* out) {
    PENSTOCK_DYNAMIC_SHARED(float, tile);
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    yield();
    out[threadIdx.x] = tile[threadIdx.x ^ 1];
}
PENSTOCK_KERNEL(kernel)
PENSTOCK_KERNEL(macro)
