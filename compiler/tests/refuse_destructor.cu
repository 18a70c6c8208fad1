// A variable with a destructor in scope.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

struct Owner {
    int* p;
    __device__ ~Owner() { *p = 1; }
};
__global__ void kernel(int* out) {
    Owner owner{out};  // ERROR: 'owner' has a destructor
    yield();  // NOTE: the point is here
    out[0] = 1;
}
PENSTOCK_KERNEL(kernel)
