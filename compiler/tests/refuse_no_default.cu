// A type without a default constructor.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

struct Only {
    int x;
    __device__ explicit Only(int y) : x(y) {}
};
__global__ void kernel(int* out, const int* in) {
    Only only(in[0]);  // ERROR: 'only' has no default constructor
    yield();  // NOTE: the point is here
    out[0] = only.x;
}
PENSTOCK_KERNEL(kernel)
