// A block that leaves does not leave a try block.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(float* out) {
    try {
        yield();  // ERROR: a point may not be in try; move it out of the try block
    } catch (...) {
    }
    out[threadIdx.x] = 1;
}
PENSTOCK_KERNEL(kernel)
