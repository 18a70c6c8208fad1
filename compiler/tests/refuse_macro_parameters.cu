// Parentheses of the parameters that a macro brings are not in the kernel's text.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

#define ARGUMENTS (int* out)
#define PARAMETERS int *out, int n

__global__ void inside(PARAMETERS) {
    yield();
    if (threadIdx.x == 0) *out = n;
}
__global__ void kernel ARGUMENTS {  // ERROR: may not come from a macro
    yield();
    if (threadIdx.x == 0) *out = 1;
}
PENSTOCK_KERNEL(inside)
PENSTOCK_KERNEL(kernel)
