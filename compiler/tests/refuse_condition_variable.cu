// A point under a condition that declares a variable.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const int* in, int* out) {
    if (int x = in[0]) {  // NOTE: the variable is declared here
        yield();  // ERROR: a condition that declares a variable
        out[0] = x;
    }
}
PENSTOCK_KERNEL(kernel)
