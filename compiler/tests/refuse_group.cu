// A read of a warp.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(DeviceFileSystem fs, Descriptor file, char* buffer) {
#pragma preempt
    gread(fs, file, 0, 64, buffer, device::OneWarp{});  // ERROR: a call of the whole block
}
PENSTOCK_KERNEL(kernel)
