// A structured binding of an array.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const unsigned* in, unsigned* out) {
    unsigned pair[2];
    for (unsigned i = 0; i < 2; ++i) pair[i] = in[i];
    auto [a, b] = pair;  // ERROR: a structured binding of an array ahead of a point
    yield();
    out[threadIdx.x] = a + b;
}
PENSTOCK_KERNEL(kernel)
