// Device functions of the file that read blockIdx are copied.
// RUN: transform
// CHECK: __device__ unsigned block_offset__preemptible(const
//    ::penstock::preemption::Run& penstock_run)
// CHECK: mine__preemptible(T* base, const ::penstock::preemption::Run& penstock_run)
// CHECK: block_offset__preemptible(penstock_run)
// CHECK: mine__preemptible(out, penstock_run)
// CHECK: other(MY_ROW)
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

#define MY_ROW (blockIdx.x * blockDim.x + threadIdx.x)
__device__ unsigned block_offset() { return blockIdx.x * 64; }
template <class T>
__device__ T* mine(T* base) {
    return base + block_offset() + gridDim.x;
}
__device__ int other(int x) { return x + 1; }
__global__ void kernel(float* out) {
    float* place = mine(out);
    yield();
    place[threadIdx.x] = other(MY_ROW);
}
PENSTOCK_KERNEL(kernel)
