// Early returns that all threads take.
// RUN: transform
// CHECK: if (penstock_at == 0) { if (n == 0) return; }
// CHECK: while (penstock_run.begin()) {
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const int* in, int* out, int n) {
    if (n == 0) return;
    int x = in[0];
    if (n > 3) {
        yield();
        if (x == 0) return;
        out[1] = x;
    }
    out[0] = x;
}
PENSTOCK_KERNEL(kernel)
