// A point between a goto and its label.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(int* out, int n) {
again:
    out[0] += 1;
    yield();
    if (--n > 0) goto again;  // ERROR: between a goto and its label
}
PENSTOCK_KERNEL(kernel)
