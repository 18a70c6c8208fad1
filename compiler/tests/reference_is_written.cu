// A function that may write through its reference, or that keeps it, is a write and an address.
// RUN: transform
// CHECK: penstock_run.load_into(a
// CHECK: penstock_run.load_into(b
// CHECK: .thread_words = 2
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

template <class T>
__device__ void add(T& value) {
    value += 2;
}
template <class T>
__device__ void passed_on(T& value) {
    add(value);
}
template <class T>
__device__ T& itself(T& value) {
    return value;
}
__global__ void kernel(int* out) {
    int a, b;
    a = threadIdx.x, b = threadIdx.y;
    passed_on(a);
    int& other = itself(b);
    other += 1;
    yield();
    out[a] = b;
}
PENSTOCK_KERNEL(kernel)
