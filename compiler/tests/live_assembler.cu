// An output of inline assembler is written.
// RUN: transform
// CHECK: penstock_run.save(0, lane);
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(unsigned* out) {
    unsigned lane = 0;
    asm("" : "=r"(lane));
    yield();
    out[threadIdx.x] = lane;
}
PENSTOCK_KERNEL(kernel)
