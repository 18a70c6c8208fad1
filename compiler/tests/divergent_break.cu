// A break in some threads diverges in the next iteration.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const float* in, int n) {
    for (int i = 0; i < n; ++i) {
        yield();  // ERROR: not all threads
        if (in[threadIdx.x] > 1) break;  // NOTE: this condition differs
    }
}
PENSTOCK_KERNEL(kernel)
