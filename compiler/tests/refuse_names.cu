// A name that the output needs.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__device__ void kernel__body() {}  // ERROR: the name 'kernel__body' is taken
__global__ void kernel(int* out) {
    kernel__body();
    yield();
    out[0] = 1;
}
PENSTOCK_KERNEL(kernel)
