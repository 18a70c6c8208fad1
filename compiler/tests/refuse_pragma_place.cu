// A pragma ahead of anything else.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(int* out) {
#pragma preempt  // ERROR: belongs ahead of a statement that calls gread or gwait
    out[0] = 1;
}
PENSTOCK_KERNEL(kernel)
