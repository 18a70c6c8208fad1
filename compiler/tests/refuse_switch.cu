// A point in a switch.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(int* out, int n) {
    switch (n) {
        case 1:
            yield();  // ERROR: a point may not be in a switch
            break;
        default: break;
    }
    out[0] = 1;
}
PENSTOCK_KERNEL(kernel)
