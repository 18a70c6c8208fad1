// Kernels of the tests of groups and of reads and writes in two halves, as group_test.cc launches
// them.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/device/handle.h"
#include "penstock/kernel.h"

namespace penstock {
#ifndef __NVCC__
namespace device {
class Block;
class Warps;
class OneWarp;
class Lanes;
}  // namespace device
#endif

namespace system_test {

// What the kernels share. Results are counted in device memory.
struct GroupJob {
    DeviceFileSystem fs;
    Descriptor file;
    const char* path;
    const char* const* own_paths;  // of each warp: a file that is not there
    const std::byte* expected;     // the file's bytes
    std::byte* model;              // the same, where groups write the file
    uint64_t size;                 // of the file
    std::byte* buffers;            // one of `buffer_size` for each warp
    uint64_t buffer_size;
    uint64_t seed;
    unsigned long long* wrong;    // bytes, counts and results that were not as they must be
    unsigned long long* done;     // groups that came to the end
    unsigned long long* refused;  // asynchronous calls that got -EAGAIN
};

// Groups read at random, now at once and now in two halves, and look at what they got. With groups
// of a warp, lane 1 of each third warp has returned before.
template <class Group>
PENSTOCK_GLOBAL void read_at_random(GroupJob job, unsigned rounds);
// Groups write at random, now at once and now in two halves, each in its own part of the file, and
// look at what they have written. `model` is what the file should be.
template <class Group>
PENSTOCK_GLOBAL void write_at_random(GroupJob job, unsigned rounds);
// Every call once, by each group.
template <class Group>
PENSTOCK_GLOBAL void call_all(GroupJob job);
// Begins reads and writes in turn until a group has as many as it may, waits for `waited` of them
// and leaves the others. `refuses`: there are records for every team that can be resident, and so
// no more for this one.
template <class Group>
PENSTOCK_GLOBAL void leave_calls(GroupJob job, unsigned waited, bool refuses);

}  // namespace system_test
}  // namespace penstock
