// A declaration from a macro that must be guarded.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

#define DECLARE(name) int name = in[threadIdx.x]
__global__ void kernel(const int* in, int* out) {
    DECLARE(value);  // ERROR: comes from a macro, and must be guarded
    yield();
    out[threadIdx.x] = value;
}
PENSTOCK_KERNEL(kernel)
