// The kernel of closed_while_reading_test.cc: the form of gread that runs on GPUs, warp by warp.
#include "penstock/device/file.cuh"
#include "tests/closed_while_reading_test.h"

__global__ void read_until_closed(penstock::DeviceFileSystem fs, penstock::Descriptor file,
                                  uint64_t size, std::byte* buffer, long long* last) {
    int64_t count = 0;
    do {
        count = penstock::gread(fs, file, 0, size, buffer, penstock::device::Warps());
    } while (count == static_cast<int64_t>(size));
    if (threadIdx.x == 0) *last = count;
}

PENSTOCK_KERNEL(read_until_closed)
