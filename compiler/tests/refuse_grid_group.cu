// A cooperative grid.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

#include <cooperative_groups.h>
__global__ void kernel(int* out, int n) {
    auto grid = cooperative_groups::this_grid();  // ERROR: blocks of a cooperative grid wait
    yield();
    if (n > 0) out[0] = sizeof grid;
}
PENSTOCK_KERNEL(kernel)
