// A write of a part of an element leaves the rest of the element live.
// RUN: transform
// CHECK: penstock_run.save(0, boxes[1]);
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

struct Box {
    float values[4];
};

__global__ void kernel(const float* in, float* out) {
    Box boxes[2];
    boxes[1].values[0] = in[threadIdx.x];
    yield();
    boxes[1].values[2] = 1;
    out[threadIdx.x] = boxes[1].values[0];
}
PENSTOCK_KERNEL(kernel)
