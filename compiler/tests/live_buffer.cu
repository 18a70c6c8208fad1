// What completes a read is read again: the buffer, and where the result goes.
// RUN: transform
// CHECK: const int slot = penstock_at == 0 ? static_cast<int>(where[0]) : penstock_run.load<int>(
// CHECK: char* mine = penstock_at == 0 ? static_cast<char *>(buffers + where[1]) :
//    penstock_run.load<char *>(
// CHECK: const int64_t offset = penstock_at == 0 ? static_cast<int64_t>(where[2]) : int64_t{};
// CHECK: .thread_words = 3
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(DeviceFileSystem fs, Descriptor file, char* buffers, int64_t* out,
                       const int* where) {
    const int slot = where[0];
    char* mine = buffers + where[1];
    const int64_t offset = where[2];
#pragma preempt
    out[slot] = gread(fs, file, offset, 64, mine);
}
PENSTOCK_KERNEL(kernel)
