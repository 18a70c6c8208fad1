// A reference whose place has changed.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const int* in, int* out) {
    int values[4] = {1, 2, 3, 4};
    int i = in[0];
    int& r = values[i];  // ERROR: 'r' refers to memory of the block
    i = 3;
    yield();
    out[i] = r;
}
PENSTOCK_KERNEL(kernel)
