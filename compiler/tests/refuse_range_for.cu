// A point in a range-for.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(int* out) {
    int values[3] = {1, 2, 3};
    for (int one : values) {
        yield();  // ERROR: a point may not be in a range-for
        out[one] = 1;
    }
}
PENSTOCK_KERNEL(kernel)
