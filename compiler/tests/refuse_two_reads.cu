// A statement with two reads.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(DeviceFileSystem fs, Descriptor file, char* buffer, int64_t* out) {
#pragma preempt  // ERROR: has one call of gread or gwait
    out[0] = gread(fs, file, 0, 64, buffer) + gread(fs, file, 64, 64, buffer);
}
PENSTOCK_KERNEL(kernel)
