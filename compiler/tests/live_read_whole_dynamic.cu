// The same of dynamic shared memory, whose size is known at the launch.
// RUN: transform without-g++
// CHECK: if (penstock_at != 0) { if ((penstock_at != 1 ||
//    !::penstock::preemption::is_whole(penstock_run.load_block<::penstock::preemption::Read>(0),
//    penstock_run.dynamic_shared_size()))) penstock_run.load_dynamic_shared(0);
// CHECK: if (!::penstock::preemption::is_whole(penstock_read_1,
//    penstock_run.dynamic_shared_size())) penstock_run.save_dynamic_shared(0);
// CHECK: leave(1);
// CHECK: { penstock_run.save_block(6, got); penstock_run.save_dynamic_shared(0);
//    penstock_run.leave(2);
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(DeviceFileSystem fs, Descriptor file, uint64_t size, float* out) {
    extern __shared__ float tile[];
    int64_t got = 0;
#pragma preempt
    got += gread(fs, file, 0, size, tile);
    yield();
    out[threadIdx.x] = tile[threadIdx.x ^ 1] + got;
}
PENSTOCK_KERNEL(kernel)
