// A generic lambda is judged by its calls: it only reads `row`, which is computed again, and the
// function that it calls gets the block's position.
// RUN: transform
// CHECK: auto f = [&penstock_run, row](auto x) { return of_block__preemptible(x, penstock_run)
// CHECK-NOT: save(
// CHECK: .thread_words = 0, .block_words = 0
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

template <class T>
__device__ T of_block(T a) {
    return a + blockIdx.x * 7;
}
__global__ void kernel(int* out) {
    const int row = threadIdx.x;
    auto f = [row](auto x) { return of_block(x) + row; };
    yield();
    out[row] = f(3) + f(4L);
}
PENSTOCK_KERNEL(kernel)
