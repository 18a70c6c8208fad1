// What another thread may store meanwhile differs between the threads, unless they vote.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void votes(volatile int* stop) {
    while (!__syncthreads_or(stop[0])) yield();
}
__global__ void kernel(volatile int* stop) {
    while (stop[0] == 0) {  // NOTE: this condition differs
        yield();            // ERROR: not all threads
    }
}
PENSTOCK_KERNEL(votes)
PENSTOCK_KERNEL(kernel)
