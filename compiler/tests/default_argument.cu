// The default arguments of a kernel are left out of its other form: a launch passes all arguments.
// RUN: transform
// CHECK: kernel__body(int* out, int n , int penstock_parameter_3,
// CHECK: { static_cast<void>(penstock_parameter_3);
// CHECK: kernel__preemptible(int* out, int n , int penstock_parameter_3,
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(int* out, int n = 3, int = 4) {
    yield();
    out[0] = n;
}
PENSTOCK_KERNEL(kernel)
