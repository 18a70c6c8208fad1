// Kernels of gpu_test.cc. All transfers of their arguments go through streams: the host may not
// reach device memory.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/device/handle.h"
#include "penstock/kernel.h"

namespace penstock::gpu_test {

struct ReadResult {
    unsigned long long bytes = 0;   // over all blocks
    unsigned long long failed = 0;  // errno of some read that failed; 0: none did
};

// Reads the whole file into `out`; blocks take turns with pieces of `piece` bytes.
PENSTOCK_GLOBAL void read_whole(DeviceFileSystem fs, Descriptor file, uint64_t piece,
                                std::byte* out, ReadResult* result);
// The same for blocks of up to 1,024 GPU threads, for which 64 registers a thread are left.
PENSTOCK_GLOBAL void read_whole_by_large_blocks(DeviceFileSystem fs, Descriptor file,
                                                uint64_t piece, std::byte* out, ReadResult* result);
// Opens `path` in every block, compares what gread and gmmap give, closes. `result[block]`: 0 or
// what went wrong.
PENSTOCK_GLOBAL void open_and_compare(DeviceFileSystem fs, const char* path, int64_t* result);
// values[i] = the sum of the values of the block's dynamic shared memory, after some work with a
// stack of its own.
PENSTOCK_GLOBAL void use_shared_and_stack(unsigned* values, unsigned count);
// Runs until the host stores `told` into `*word`, which lies in pinned memory.
PENSTOCK_GLOBAL void wait_for_word(const uint64_t* word, uint64_t told);
// Stores to an address that is nobody's.
PENSTOCK_GLOBAL void store_nowhere(unsigned* address);

}  // namespace penstock::gpu_test
