// Several points, nested, beside and behind each other.
// RUN: transform
// CHECK: penstock_at == 1
// CHECK: } else if (penstock_at == 0 && penstock_run.leaves(
// CHECK: int64_t head = penstock_at == 0 ?
//    static_cast<int64_t>(::penstock::preemption::end_read(penstock_read_1, buffer)) :
//    penstock_run.load_block<int64_t>(
// CHECK: if (penstock_at == 0) { if (head < 0) return; }
// CHECK: if (penstock_at == 0 || ::penstock::preemption::within(penstock_at, 2, 4)) { for (
// CHECK: if (penstock_at == 0 ? static_cast<bool>(i % 2 == 0) :
//    ::penstock::preemption::within(penstock_at, 2, 3)) {
// CHECK: while (penstock_at != 0 || (j < i)) {
// CHECK: else if (penstock_at == 0 ? static_cast<bool>(i == 7) : penstock_at == 4) {
// CHECK: penstock_run.leave(5)
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(DeviceFileSystem fs, Descriptor file, char* buffer, int* out, int n) {
    int total = 0;
#pragma preempt
    int64_t head = gread(fs, file, 0, 8, buffer);
    if (head < 0) return;
    for (int i = 0; i < n; ++i) {
        if (i % 2 == 0) {
#pragma preempt
            int64_t got = gread(fs, file, i * 8, 8, buffer);
            total += got;
            int j = 0;
            while (j < i) {
                yield();
                ++j;
            }
            total += j;
        } else if (i == 7) {
            do {
                yield();
                ++total;
            } while (total < 100);
        } else {
            total += 3;
        }
    }
    yield();
    out[threadIdx.x] = total + head;
}
PENSTOCK_KERNEL(kernel)
