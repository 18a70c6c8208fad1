// Threads that return behind the last point make each place run one block.
// RUN: transform
// CHECK: ::penstock::preemption::OneRun penstock_run(penstock_launch);
// CHECK: while (penstock_run.begin()) {
// CHECK: if (penstock_run.ends()) break;
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(float* out, int n) {
    yield();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = 1;
}
PENSTOCK_KERNEL(kernel)
