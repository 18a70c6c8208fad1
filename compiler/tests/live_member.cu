// A write to one member leaves the others live; a write of the whole ends them.
// RUN: transform
// CHECK: Two kept = penstock_at == 0 ? static_cast<Two>(in[threadIdx.x]) :
//    penstock_run.load<Two>(0);
// CHECK: Two gone = penstock_at == 0 ? static_cast<Two>(in[threadIdx.x]) : Two{};
// CHECK: .thread_words = 2
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

struct Two {
    float a, b;
};
__global__ void kernel(const Two* in, float* out) {
    Two kept = in[threadIdx.x];
    Two gone = in[threadIdx.x];
    out[1] = gone.a;
    yield();
    kept.a = 1;
    gone = in[0];
    out[threadIdx.x] = kept.b + gone.b;
}
PENSTOCK_KERNEL(kernel)
