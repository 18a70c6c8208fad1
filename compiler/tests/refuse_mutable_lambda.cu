// A closure with a state and a reference.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(int* out) {
    int sum = 0;
    auto next = [&sum, n = 0]() mutable { sum += ++n; };  // ERROR: 'next' refers to memory of
    next();
    yield();
    next();
    out[0] = sum;
}
PENSTOCK_KERNEL(kernel)
