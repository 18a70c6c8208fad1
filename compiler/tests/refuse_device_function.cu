// A point in a device function.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__device__ void helper() {
    yield();  // ERROR: a point may not be in a device function
}
__global__ void kernel(int* out) {
    helper();
    out[0] = 1;
}
PENSTOCK_KERNEL(kernel)
