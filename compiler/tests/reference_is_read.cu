// A function that only reads through its reference changes nothing: what it is called with is
// computed again.
// RUN: transform
// CHECK: int row = threadIdx.x * 3;
// CHECK-NOT: save(
// CHECK: .thread_words = 0
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

template <class T>
__device__ T doubled(T& value) {
    return value * 2;
}
template <class T>
__device__ T passed_on(T& value) {
    return doubled(value) + value;
}
__global__ void kernel(int* out) {
    int row = threadIdx.x * 3;
    yield();
    out[row] = passed_on(row);
}
PENSTOCK_KERNEL(kernel)
