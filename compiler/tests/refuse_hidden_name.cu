// A variable that another of its name hides cannot be saved there by its name.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const float* in, float* out, int n) {
    float sum = in[threadIdx.x];  // ERROR: 'sum' is live at a point where another
    for (int i = 0; i < n; ++i) {
        const float sum = in[i];
        yield();  // NOTE: the point is here
        out[threadIdx.x] += sum;
    }
    out[threadIdx.x] += sum;
}
PENSTOCK_KERNEL(kernel)
