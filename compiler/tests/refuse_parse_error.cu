// Nothing is written after an error of the source.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(int* out) {
    yield();
    out[0] = missing;  // ERROR: use of undeclared identifier 'missing'
}
PENSTOCK_KERNEL(kernel)
