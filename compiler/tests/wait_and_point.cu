// gwait with a pragma, and preempt_point ahead of a gwait.
// RUN: transform
// CHECK: penstock_run.leaves(::penstock::preemption::until(fs, first))
// CHECK: out[0] = gwait(fs, first); }
// CHECK: penstock_run.leaves(::penstock::preemption::until(fs, second))
// CHECK: out[1] = gwait(fs, second);
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(DeviceFileSystem fs, Descriptor file, char* buffer, int64_t* out) {
    AsyncHandle first = gread_async(fs, file, 0, 64, buffer);
    AsyncHandle second = gread_async(fs, file, 64, 64, buffer + 64);
#pragma preempt
    out[0] = gwait(fs, first);
    preempt_point(fs, second);
    out[1] = gwait(fs, second);
}
PENSTOCK_KERNEL(kernel)
