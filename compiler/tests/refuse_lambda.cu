// A point in a lambda.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(int* out) {
    auto f = [&] {
        yield();  // ERROR: a point may not be in a lambda
    };
    f();
    out[0] = 1;
}
PENSTOCK_KERNEL(kernel)
