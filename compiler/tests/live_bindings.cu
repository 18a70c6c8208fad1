// The object of a structured binding is saved as one.
// RUN: transform
// CHECK: auto penstock_bound_
// CHECK: ; auto& [first, second] = penstock_bound_
// CHECK: .thread_words = 2
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

struct Pair {
    float first;
    int second;
};
__device__ Pair load(const float* in, int i) { return {in[i], static_cast<int>(in[i + 1])}; }
__global__ void kernel(const float* in, float* out) {
    auto [first, second] = load(in, threadIdx.x);
    yield();
    out[threadIdx.x] = first * second;
}
PENSTOCK_KERNEL(kernel)
