// Uniform loops with continue, votes, if constexpr, parameters, and shared flags are legal.
// RUN: transform
// CHECK: penstock_run.leave(1)
// CHECK: penstock_run.leave(2)
// CHECK: penstock_run.leave(3)
// CHECK: .point_count = 3
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

template <bool kVaries>
__global__ void kernel(const int* in, float* out, int n, bool wanted) {
    __shared__ int stop;
    for (int i = 0; i < n; ++i) {
        if (i % 2 == 1) continue;
        if (__syncthreads_or(in[threadIdx.x] > i)) yield();
        if (wanted) {
            yield();
        }
        if constexpr (kVaries) {
            if (threadIdx.x == 0) out[i] = 1;
        } else {
            yield();
        }
        if (threadIdx.x == 0) stop = in[i];
        __syncthreads();
        if (stop != 0) break;
        out[threadIdx.x] = in[0];
    }
}
PENSTOCK_KERNEL(kernel<false>)
PENSTOCK_KERNEL(kernel<true>)
