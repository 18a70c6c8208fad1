// A device function whose shared variable may keep its value.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__device__ int count() {
    __shared__ int calls;  // ERROR: may keep its value across a point
    if (threadIdx.x == 0) ++calls;
    __syncthreads();
    return calls;
}
__global__ void kernel(int* out) {
    out[0] = count();
    yield();
    out[1] = count();
}
PENSTOCK_KERNEL(kernel)
