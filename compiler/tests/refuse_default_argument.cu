// A kernel with a default argument.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(int* out, int n = 3) {  // ERROR: has no default arguments
    yield();
    out[0] = n;
}
PENSTOCK_KERNEL(kernel)
