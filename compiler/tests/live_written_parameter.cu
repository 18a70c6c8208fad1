// A parameter that the kernel writes is saved, others are not.
// RUN: transform
// CHECK: if (penstock_at != 0) { penstock_run.load_into(in, 0); penstock_run.load_block_into(n,
//    0); }
// CHECK: .thread_words = 2, .block_words = 1
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const float* in, float* out, int n, int m) {
    n -= m;
    yield();
    in += threadIdx.x;
    out[n + m] = *in;
}
PENSTOCK_KERNEL(kernel)
