// A closure with a reference and a copy of what has changed can be neither made again nor saved.
// The same of a pointer to shared memory whose index has changed.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

struct Vector {
    float x, y;
};

__global__ void kernel(const float* in, float* out, int n) {
    __shared__ float tile[64];
    Vector v{in[0], 2};
    float sum = 0;
    auto f = [=, &sum] { sum += v.x; };  // ERROR: cannot be made again: 'v' is changed after it
    v.x += 100;
    tile[threadIdx.x] = v.x;
    int k = n;
    float* place = &tile[k];  // ERROR: cannot be made again: 'k' is changed after it
    ++k;
    yield();
    f();
    out[threadIdx.x] = sum + v.x + *place + k;
}
PENSTOCK_KERNEL(kernel)
