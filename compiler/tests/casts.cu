// Casts round a call, and compound assignments.
// RUN: transform
// CHECK: static_cast<int>(::penstock::preemption::end_read(penstock_read_1, buffer))
// CHECK: total += (int)::penstock::preemption::end_read(penstock_read_2, buffer);
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(DeviceFileSystem fs, Descriptor file, char* buffer, int* out) {
    int total = 1;
#pragma preempt
    const int got = static_cast<int>(gread(fs, file, 0, 64, buffer));
#pragma preempt
    total += (int)gread(fs, file, 64, 64, buffer);
    out[0] = total + got;
}
PENSTOCK_KERNEL(kernel)
