// Kernels of the tests of the first path, as the test program launches them.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/device/handle.h"
#include "penstock/kernel.h"

namespace penstock {
#ifndef __NVCC__
namespace device {
class Block;
class Warps;
}  // namespace device
#endif

namespace file_test {

template <class Group>
PENSTOCK_GLOBAL void read_whole(DeviceFileSystem fs, Descriptor file, uint64_t piece,
                                std::byte* out, int64_t* result);
template <class Group>
PENSTOCK_GLOBAL void every_call(DeviceFileSystem fs, const char* path, std::byte* out,
                                int64_t* result);
template <class Group>
PENSTOCK_GLOBAL void open_only(DeviceFileSystem fs, const char* path, int flags, int64_t* result);

}  // namespace file_test
}  // namespace penstock
