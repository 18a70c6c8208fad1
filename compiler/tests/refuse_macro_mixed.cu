// A macro that declares and does more.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

#define BEGIN(name) int name = 1; out[0] = name
__global__ void kernel(int* out) {
    BEGIN(value);  // ERROR: a macro ahead of a point that declares a variable and does more
    yield();
    out[1] = value;
}
PENSTOCK_KERNEL(kernel)
