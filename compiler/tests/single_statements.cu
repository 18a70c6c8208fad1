// Bodies that are one statement become lists.
// RUN: transform
// CHECK: penstock_run.leave(1);
// CHECK: penstock_run.leave(2);
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(DeviceFileSystem fs, Descriptor file, char* buffer, int n) {
    for (int i = 0; i < n; ++i)
        if (i > 2)
#pragma preempt
            gread(fs, file, i, 64, buffer);
        else
            yield();
}
PENSTOCK_KERNEL(kernel)
