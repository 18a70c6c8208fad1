// A closure or a pointer is made again from a loop's counter, which does not change between its
// declaration and the point.
// RUN: transform
// CHECK: auto scaled = [=](float x) { return x * k + in[k]; };
// CHECK: float* row = &tile[k];
// CHECK: auto unused = [=] { return k + 1; };
// CHECK: penstock_run.save_shared(&tile, sizeof tile, 0);
// CHECK: penstock_run.save_block(0, k);
// CHECK: .thread_words = 1, .block_words = 1, .shared_size = 256
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const float* in, float* out, int n) {
    __shared__ float tile[64];
    float sum = 0;
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    for (int k = 0; k < n; ++k) {
        auto scaled = [=](float x) { return x * k + in[k]; };
        float* row = &tile[k];
        auto unused = [=] { return k + 1; };
        sum += unused();
        yield();
        sum += scaled(sum) + *row;
    }
    out[threadIdx.x] = sum;
}
PENSTOCK_KERNEL(kernel)
