// Only the elements of an array that are live are saved, if subscripts are constant.
// RUN: transform
// CHECK: float acc[8]; if (penstock_at != 0) { penstock_run.load_into(acc[3], 0);
//    penstock_run.load_into(acc[5], 1); }
// CHECK: penstock_run.save(0, acc[3]);
// CHECK: penstock_run.save(1, acc[5]);
// CHECK: .thread_words = 2
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const float* in, float* out) {
    float acc[8];
    for (int i = 0; i < 8; ++i) acc[i] = in[i];
    out[0] = acc[1];
    yield();
    out[threadIdx.x] = acc[3] + acc[5];
}
PENSTOCK_KERNEL(kernel)
