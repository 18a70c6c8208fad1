// yield_until waits for a word.
// RUN: transform
// CHECK: #define blockIdx penstock_block_index
// CHECK: until_word(word + 1, 7)
// CHECK: #pragma pop_macro
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const uint64_t* word, int* out) {
    if (blockIdx.x != 0) yield_until(word + 1, 7);
    out[blockIdx.x * gridDim.x] = 1;
}
PENSTOCK_KERNEL(kernel)
