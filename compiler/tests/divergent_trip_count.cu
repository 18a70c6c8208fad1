// A loop that runs a different number of times diverges.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(float* out) {
    for (unsigned i = 0; i < threadIdx.x; ++i) {  // NOTE: this condition differs
        yield();  // ERROR: not all threads
        out[i] = 1;
    }
}
PENSTOCK_KERNEL(kernel)
