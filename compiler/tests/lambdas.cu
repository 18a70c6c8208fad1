// Lambdas are made again; one that reads blockIdx gets it.
// RUN: transform
// CHECK: const float factor = penstock_at == 0 ?
// CHECK: auto scaled = [=](float value)
// CHECK: auto place = [penstock_block_index, penstock_grid_dimensions, row](int i)
// CHECK: .thread_words = 2, .block_words = 1
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const float* in, float* out, int n) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    const float factor = in[row];
    auto scaled = [=](float value) { return value * factor; };
    auto place = [row](int i) { return row + i * static_cast<int>(gridDim.x); };
    auto cleared = [] { return 0.0f; };
    float sum = cleared();
    for (int i = 0; i < n; ++i) {
        yield();
        sum += scaled(in[place(i)]);
    }
    out[row] = sum;
}
PENSTOCK_KERNEL(kernel)
