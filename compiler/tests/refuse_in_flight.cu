// A read into shared memory in flight.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(DeviceFileSystem fs, Descriptor file, char* out) {
    __shared__ char tile[64];
    AsyncHandle handle = gread_async(fs, file, 0, 64, tile);  // ERROR: in flight at a point
    preempt_point(fs, handle);  // NOTE: the point is here
    gwait(fs, handle);
    out[threadIdx.x] = tile[threadIdx.x];
}
PENSTOCK_KERNEL(kernel)
