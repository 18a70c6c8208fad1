// A flag that is set under a condition of the thread diverges.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(DeviceFileSystem fs, Descriptor file, char* buffer) {
    bool flag = false;
    if (threadIdx.x > 3) flag = true;
    if (flag) {  // NOTE: this condition differs
#pragma preempt
        gread(fs, file, 0, 64, buffer);  // ERROR: make the condition equal in all threads
    }
}
PENSTOCK_KERNEL(kernel)
