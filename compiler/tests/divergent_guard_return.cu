// A guard that returns in some threads diverges.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;  // NOTE: this condition differs between the threads
    yield();  // ERROR: not all threads of the block reach this point; move it behind
    out[i] = 1;
}
PENSTOCK_KERNEL(kernel)
