// A lambda that calls a function that reads blockIdx hands on the block's own position. It is made
// again, since the position is a part of it.
// RUN: transform
// CHECK: of_block__preemptible(int a, const ::penstock::preemption::Run& penstock_run)
// CHECK: auto copies = [=](int x) { return x + of_block__preemptible(row, penstock_run); };
// CHECK: auto listed = [&penstock_run, row](int x) {
// CHECK: auto both = [penstock_block_index, penstock_grid_dimensions, &penstock_run, row](int x) {
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__device__ int of_block(int a) { return a + blockIdx.x * 7; }
__global__ void kernel(int* out) {
    const int row = threadIdx.x;
    auto copies = [=](int x) { return x + of_block(row); };
    auto listed = [row](int x) { return x + of_block(row); };
    auto both = [row](int x) { return of_block(x) + static_cast<int>(gridDim.x) + row; };
    yield();
    out[row] = copies(1) + listed(2) + both(3);
}
PENSTOCK_KERNEL(kernel)
