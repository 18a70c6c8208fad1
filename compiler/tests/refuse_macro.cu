// A point in a macro.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

#define STEP yield()
__global__ void kernel(int* out) {
    STEP;  // ERROR: a point may not be in the expansion of a macro
    out[0] = 1;
}
PENSTOCK_KERNEL(kernel)
