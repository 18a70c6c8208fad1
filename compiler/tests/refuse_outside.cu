// A pragma outside of a kernel.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

#pragma preempt  // ERROR: is outside of a kernel
__global__ void kernel(int* out) {
    yield();
    out[0] = 1;
}
PENSTOCK_KERNEL(kernel)
