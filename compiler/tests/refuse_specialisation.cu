// The form of an explicit specialisation would have to be one too.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

template <class T>
__global__ void kernel(T* out) {
    out[threadIdx.x] = 1;
}
template <>
__global__ void kernel<float>(float* out) {  // ERROR: may not be an explicit specialisation; use if
                                             // constexpr
    yield();
    out[threadIdx.x] = 2;
}
PENSTOCK_KERNEL(kernel<float>)
