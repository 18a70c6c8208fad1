// Shared memory that a read at a point replaces is saved only if the read is short.
// RUN: transform
// CHECK: __shared__ float tile[64]; if (penstock_at != 0) { if ((penstock_at != 2 ||
//    !::penstock::preemption::is_whole(penstock_run.load_block<::penstock::preemption::Read>(0),
//    sizeof tile))) penstock_run.load_shared(&tile, sizeof tile, 0); __syncthreads(); }
// CHECK: { penstock_run.save_shared(&tile, sizeof tile, 0); penstock_run.save_block(6, got);
//    penstock_run.leave(1);
// CHECK: if (!::penstock::preemption::is_whole(penstock_read_2, sizeof tile))
//    penstock_run.save_shared(&tile, sizeof tile, 0);
// CHECK: penstock_run.leave(2);
// CHECK: { penstock_run.save_shared(&tile, sizeof tile, 0);
// CHECK: penstock_run.leave(3);
// CHECK: { penstock_run.save_shared(&tile, sizeof tile, 0);
// CHECK: penstock_run.leave(4);
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(DeviceFileSystem fs, Descriptor file, float* out) {
    __shared__ float tile[64];
    int64_t got = 0;
    tile[threadIdx.x] = 0;
    __syncthreads();
    yield();
#pragma preempt
    got += gread(fs, file, 0, sizeof tile, tile);
    out[threadIdx.x] = tile[threadIdx.x ^ 1];
    __syncthreads();
#pragma preempt
    got += gread(fs, file, 256, sizeof tile / 2, tile);
    out[threadIdx.x] += tile[threadIdx.x ^ 1];
    __syncthreads();
#pragma preempt
    got += gread(fs, file, 512, sizeof tile / 2, tile + 32);
    out[threadIdx.x] += tile[threadIdx.x ^ 1] + got;
}
PENSTOCK_KERNEL(kernel)
