// A live variable that is not trivially copyable.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

struct Odd {
    int x = 0;
    Odd() = default;
    __device__ explicit Odd(int y) : x(y) {}
    __device__ Odd(const Odd& other) : x(other.x + 1) {}
};
__global__ void kernel(int* out, const int* in) {
    Odd odd(in[0]);  // ERROR: 'odd' is live at a point and is not trivially copyable
    yield();  // NOTE: the point is here
    out[0] = odd.x;
}
PENSTOCK_KERNEL(kernel)
