// A value that the next iteration reads is live.
// RUN: transform
// CHECK: float last = penstock_at == 0 ? static_cast<float>(0) : penstock_run.load<float>(0);
// CHECK: for (int i = penstock_at == 0 ? static_cast<int>(0) : penstock_run.load_block<int>(0);
//    penstock_at != 0 || (i < n); ++i) {
// CHECK: .thread_words = 1, .block_words = 1
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const float* in, float* out, int n) {
    float last = 0;
    for (int i = 0; i < n; ++i) {
        const float now = in[i * blockDim.x + threadIdx.x];
        out[threadIdx.x] += now - last;
        last = now;
        yield();
    }
}
PENSTOCK_KERNEL(kernel)
