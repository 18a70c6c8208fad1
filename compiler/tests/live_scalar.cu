// A variable that is set before a point and read behind it is saved.
// RUN: transform
// CHECK: float kept = penstock_at == 0 ? static_cast<float>(in[threadIdx.x]) :
//    penstock_run.load<float>(0);
// CHECK: float gone = penstock_at == 0 ? static_cast<float>(in[threadIdx.x + 1]) : float{};
// CHECK: if (penstock_at == 0) { out[threadIdx.x] = gone; }
// CHECK: penstock_run.save(0, kept);
// CHECK-NOT: , gone);
// CHECK: .thread_words = 1, .block_words = 0
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const float* in, float* out) {
    float kept = in[threadIdx.x];
    float gone = in[threadIdx.x + 1];
    out[threadIdx.x] = gone;
    yield();
    out[threadIdx.x] += kept;
}
PENSTOCK_KERNEL(kernel)
