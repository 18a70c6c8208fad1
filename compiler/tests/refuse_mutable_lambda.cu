// A closure with a state.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(int* out) {
    auto next = [n = 0]() mutable { return ++n; };  // ERROR: 'next' refers to memory of the block
    out[0] = next();
    yield();
    out[1] = next();
}
PENSTOCK_KERNEL(kernel)
