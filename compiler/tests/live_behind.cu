// What counts is what is live behind the point: a variable set by the point's own statement is
// not saved.
// RUN: transform
// CHECK: int64_t got = penstock_at == 0 ? static_cast<int64_t>(7) : int64_t{};
// CHECK: got = ::penstock::preemption::end_read(penstock_read_1, buffer);
// CHECK: .thread_words = 0, .block_words = 6
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(DeviceFileSystem fs, Descriptor file, char* buffer, int64_t* out) {
    int64_t got = 7;
    out[1] = got;
#pragma preempt
    got = gread(fs, file, 0, 64, buffer);
    out[0] = got;
}
PENSTOCK_KERNEL(kernel)
