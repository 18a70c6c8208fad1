// What a lambda copies through a reference may change through another name, so it is saved.
// RUN: transform
// CHECK: auto f = [=] { return r; }; if (penstock_at != 0) { penstock_run.load_into(f,
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const int* in, int* out) {
    int a = in[threadIdx.x];
    int& r = a;
    auto f = [=] { return r; };
    a += 1;
    yield();
    out[threadIdx.x] = f() + r;
}
PENSTOCK_KERNEL(kernel)
