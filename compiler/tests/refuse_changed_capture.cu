// A closure with a copy of a class is not made again from what has changed.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

struct Vector {
    float x, y;
};

__global__ void kernel(const float* in, float* out) {
    Vector v{in[0], 2};
    auto f = [=] { return v.x; };  // ERROR: cannot be made again: 'v' is changed after it
    v.x += 100;
    yield();
    out[threadIdx.x] = f() + v.x;
}
PENSTOCK_KERNEL(kernel)
