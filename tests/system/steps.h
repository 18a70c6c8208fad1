// The kernel of the system tests: an interpreter. A test writes down what each block shall call,
// one step after the other, and reads the results where it wrote the steps.
//
// Steps, paths and outputs lie in memory that host and GPU threads address
// (Device::allocate_pinned).
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

namespace system_test {

constexpr unsigned kFilesPerBlock = 8;
constexpr unsigned kViewsPerBlock = 64;
constexpr unsigned kCallsPerBlock = 4;

enum class Act : uint32_t {
    kOpen,        // files[file] = gopen(path, flags); result: the descriptor
    kClose,       // gclose(files[file])
    kRead,        // gread(files[file], offset, size, out)
    kWrite,       // gwrite(files[file], offset, size, out)
    kBeginRead,   // calls[view] = gread_async(files[file], offset, size, out); result: the handle
    kBeginWrite,  // calls[view] = gwrite_async(files[file], offset, size, out); likewise
    kWait,        // gwait(calls[view])
    kSync,        // gfsync(files[file])
    kCut,         // gftruncate(files[file], size)
    kUnlink,      // gunlink(path)
    kChange,      // copies `out` to views[view], which may be written; result: gmsync
    kMap,     // views[view] = gmmap(files[file], offset, size), copied to `out`; result: view.size
    kLook,    // copies views[view] to `out` again; result: view.size
    kUnmap,   // gmunmap(views[view])
    kStat,    // gstat(files[file]); result: size, or the errno
    kAdvise,  // gadvise(files[file], offset, size, Advice(flags))
    kSet,     // files[file] = offset: a descriptor from elsewhere, or none at all
    kNote,    // result: the 64-bit word at `out`
    kShare,   // the 64-bit word at `out` = files[file]
    kBorrow,  // files[file] = the 64-bit word at `out`: a descriptor that its opener may close
    kLeave,   // threads whose rank is in [offset, offset + size) return from the kernel
    kTrap,    // __trap()
    kLoop,    // spins until the 64-bit word at `out` is not 0
    kFault,   // stores to `out`, wherever that is
};

struct Step {
    Act act = Act::kStat;
    uint32_t file = 0;  // index below kFilesPerBlock
    uint32_t view = 0;  // index below kViewsPerBlock; of a call: below kCallsPerBlock
    int32_t flags = 0;
    int64_t offset = 0;
    uint64_t size = 0;
    const char* path = nullptr;
    std::byte* out = nullptr;
    int64_t result = 0;          // written by thread 0 of the block
    uint32_t disagreements = 0;  // threads that got another result than thread 0
};

// What block `b` of a launch does.
struct BlockSteps {
    Step* steps = nullptr;
    uint64_t count = 0;
    uint64_t done = 0;  // steps that are over; written by thread 0
};

template <class Group>
PENSTOCK_GLOBAL void run_steps(DeviceFileSystem fs, BlockSteps* blocks);

// Takes all pages of a file out of the cache.
PENSTOCK_GLOBAL void forget_file(DeviceFileSystem fs, Descriptor file);

}  // namespace system_test
}  // namespace penstock
