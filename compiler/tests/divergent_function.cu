// A value that a device function makes of the thread's index differs.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__device__ int mine() { return threadIdx.x; }
__device__ int twice() { return 2 * mine(); }
__global__ void kernel(float* out) {
    if (twice() > 2) {  // NOTE: this condition differs
        yield();  // ERROR: not all threads
    }
    out[0] = 1;
}
PENSTOCK_KERNEL(kernel)
