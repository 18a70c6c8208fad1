// An address of the block's memory in global memory.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(int** table, int* out) {
    __shared__ int values[4];
    table[0] = &values[1];  // ERROR: is stored in memory
    yield();
    out[0] = *table[0];
}
PENSTOCK_KERNEL(kernel)
