// A lambda that knows the block's position, and whose copy of a variable has changed.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

template <class T>
__device__ T of_block(T a) {
    return a + blockIdx.x * 7;
}
__global__ void kernel(const int* in, int* out) {
    int row = in[threadIdx.x];
    auto f = [=](auto x) { return of_block(x) + row; };  // ERROR: 'row' is changed after it
    ++row;
    yield();
    out[row] = f(3);
}
PENSTOCK_KERNEL(kernel)
