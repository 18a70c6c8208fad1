// --hoist moves a point behind the condition that differs.
// RUN: transform --hoist
// CHECK: __body(
// CHECK: penstock_run.leave(1);
// CHECK: out[i] += i;
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(float* out, int n) {
    const unsigned i = threadIdx.x;
    if (i < n / 2) {
        out[i] = 1;
        yield();
    }
    out[i] += i;
}
PENSTOCK_KERNEL(kernel)
