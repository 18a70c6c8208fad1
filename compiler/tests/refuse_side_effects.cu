// A buffer whose evaluation has a side effect.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(DeviceFileSystem fs, Descriptor file, char* buffer) {
#pragma preempt
    gread(fs, file, 0, 64, buffer++);  // ERROR: evaluated again after the point
    buffer[0] = 1;
}
PENSTOCK_KERNEL(kernel)
