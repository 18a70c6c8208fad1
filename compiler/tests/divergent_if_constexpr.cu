// A branch of if constexpr diverges in one instantiation only.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

template <bool kVaries>
__global__ void kernel(float* out, int n) {
    int count = n;
    if constexpr (kVaries) count += threadIdx.x;
    for (int i = 0; i < count; ++i) {  // NOTE: this condition differs
        yield();  // ERROR: not all threads
        out[i] = 1;
    }
}
PENSTOCK_KERNEL(kernel<false>)
PENSTOCK_KERNEL(kernel<true>)
