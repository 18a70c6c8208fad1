// A template that is never instantiated is left alone.
// RUN: transform
// CHECK: __global__ void kernel(T* out) {
// CHECK-NOT: kernel__body
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

template <class T>
__global__ void kernel(T* out) {
    yield();
    out[0] = 1;
}
