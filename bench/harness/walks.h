// Kernels that go through files in streams of reads, as benchmark programs launch them; their
// bodies are in walks.cuh.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/device/handle.h"
#include "penstock/kernel.h"

namespace penstock::bench {

// How a block goes through its part of a file, bytes. Block b begins at b * share and reads
// `size` bytes `count` times, `step` on each time; or, with `random_pages` > 0, from pages of 4 KiB
// drawn from the first so many of the file, by block, number of the read and `seed`.
struct Walk {
    Descriptor file = -1;
    uint64_t share = 0, size = 0, count = 0;
    int64_t step = 0;
    uint64_t first = 0;  // added to b * share
    uint64_t random_pages = 0, seed = 0;
};

// Each block takes both walks, a read of one and a read of the other in turn until both are over;
// a walk with count 0 is not taken.
struct WalkJob {
    DeviceFileSystem fs;
    Walk walks[2];
    unsigned char* buffers;  // buffer_size for each block
    uint64_t buffer_size;
    unsigned long long* result;  // += wrong words, += bytes
};
PENSTOCK_GLOBAL void walk_files(WalkJob job);
// Only the first walk, which is not random.
PENSTOCK_GLOBAL void walk_file(WalkJob job);
// Takes all pages of a file out of the page cache.
PENSTOCK_GLOBAL void forget_file(DeviceFileSystem fs, Descriptor file);

}  // namespace penstock::bench
