// A constant array is loaded behind its declaration, and a volatile variable is saved.
// RUN: transform
// CHECK: float weights[3] = {penstock_at == 0 ? in[0]
// CHECK-NOT: const float weights
// CHECK: volatile float last = penstock_at == 0
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const float* in, float* out) {
    const float weights[3] = {in[0], in[1], 2};
    volatile float last = in[2];
    yield();
    out[threadIdx.x] = weights[threadIdx.x % 3] + last;
}
PENSTOCK_KERNEL(kernel)
