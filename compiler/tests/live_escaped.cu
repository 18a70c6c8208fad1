// Variables whose address is kept are saved wherever they are in scope; what refers to them is
// made again.
// RUN: transform
// CHECK: float a = penstock_at == 0 ? static_cast<float>(in[0]) : penstock_run.load<float>(
// CHECK: b = penstock_at == 0 ?
// CHECK: c = penstock_at == 0 ?
// CHECK: float* p = &a;
// CHECK: float& r = b;
// CHECK: auto add = [&]
// CHECK: if (penstock_at == 0) { bump(d); }
// CHECK: .thread_words = 4
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__device__ void bump(float& value) { value += 1; }
__global__ void kernel(const float* in, float* out) {
    float a = in[0], b = in[1], c = in[2], d = in[3];
    float* p = &a;
    float& r = b;
    auto add = [&](float x) { c += x; };
    bump(d);
    yield();
    *p += 1;
    r += 1;
    add(3);
    out[threadIdx.x] = a + b + c;
}
PENSTOCK_KERNEL(kernel)
