// A pointer to a local that cannot be made again.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const int* in, int* out) {
    int a = in[0], b = in[1];
    int* p = &a;  // ERROR: 'p' refers to memory of the block
    if (in[2] > 3) p = &b;  // NOTE: because of this
    yield();  // NOTE: the point is here
    out[0] = *p;
}
PENSTOCK_KERNEL(kernel)
