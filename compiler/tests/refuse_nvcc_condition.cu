// Compilers see other variables than the tool.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__device__ int helper(int n) {
#ifdef __CUDA_ARCH__  // ERROR: a condition on __CUDA_ARCH__
    return n;
#else
    return n + 1;
#endif
}
__global__ void kernel(int* out, int n) {
#if defined(__NVCC__) && 1  // ERROR: a condition on __NVCC__
    n += 1;
#endif
    yield();
    out[helper(n)] = 1;
}
PENSTOCK_KERNEL(kernel)
