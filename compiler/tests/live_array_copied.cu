// An array that a structured binding or a lambda copies is read there.
// RUN: transform
// CHECK: unsigned pair[2]; if (penstock_at != 0) { penstock_run.load_into(pair,
// CHECK: unsigned three[3]; if (penstock_at != 0) { penstock_run.load_into(three,
// CHECK: auto f = [=](unsigned i) { return three[i]; };
// CHECK: .thread_words = 5
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const unsigned* in, unsigned* out) {
    unsigned pair[2];
    unsigned three[3];
    for (unsigned i = 0; i < 2; ++i) pair[i] = in[i];
    for (unsigned i = 0; i < 3; ++i) three[i] = in[i];
    yield();
    {
        auto [a, b] = pair;
        out[threadIdx.x] = a + b;
    }
    auto f = [=](unsigned i) { return three[i]; };
    yield();
    out[threadIdx.x] += f(in[3] % 3);
}
PENSTOCK_KERNEL(kernel)
