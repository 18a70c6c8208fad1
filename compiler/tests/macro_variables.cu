// Variables that one macro declares are told apart.
// RUN: transform
// CHECK: penstock_run.load_into(a, 0); penstock_run.load_into(b, 1);
// CHECK: penstock_run.save(0, a); penstock_run.save(1, b);
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

#define DECLARE float a, b

__global__ void kernel(const float* in, float* out) {
    DECLARE;
    a = in[threadIdx.x], b = in[threadIdx.x + 1];
    yield();
    out[threadIdx.x] = a * b;
}
PENSTOCK_KERNEL(kernel)
