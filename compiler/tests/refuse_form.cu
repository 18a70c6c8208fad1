// A call inside of a larger expression.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(DeviceFileSystem fs, Descriptor file, char* buffer, int64_t* out) {
#pragma preempt
    out[0] = 1 + gread(fs, file, 0, 64, buffer);  // ERROR: is a statement, the right side
}
PENSTOCK_KERNEL(kernel)
