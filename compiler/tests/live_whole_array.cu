// An array with a subscript that is not constant is saved whole; its initialiser is not evaluated
// again.
// RUN: transform
// CHECK: {penstock_at == 0 ? in[0] : std::decay_t<decltype(in[0])>{}, 2, penstock_at == 0 ? in[1]
// CHECK: penstock_run.load_into(acc, 0);
// CHECK: .thread_words = 4
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const float* in, float* out, int n) {
    float acc[4] = {in[0], 2, in[1]};
    yield();
    out[threadIdx.x] = acc[n];
}
PENSTOCK_KERNEL(kernel)
