// Kernels of the gread benchmark, as the program launches them.
#pragma once

#include "bench/harness/test_file.h"
#include "penstock/abi/file_system.h"
#include "penstock/device/handle.h"
#include "penstock/kernel.h"

namespace penstock::bench {

// Block b reads requests b, b + grid, ... of `request_size` bytes, `rounds` times over the file's
// `size` bytes, each into its own buffer; adds wrong words and bytes read to result[0] and
// result[1].
struct ReadJob {
    DeviceFileSystem fs;
    Descriptor file;
    uint64_t size, request_size;
    unsigned rounds;
    unsigned char* buffers;  // request_size bytes for each block
    unsigned long long* result;
};
PENSTOCK_GLOBAL void read_stream(ReadJob job);
// `buffers` is as large as the file, every request goes to its own place there, and the bytes are
// left to check_bytes.
PENSTOCK_GLOBAL void read_in_place(ReadJob job);
// The same with each block in its own part of the file, from start to end.
PENSTOCK_GLOBAL void read_parts(ReadJob job);

// Read i, of page random_page(seed, i, pages), goes to `buffers` + i pages of 4 KiB; blocks take
// reads in turn.
struct RandomJob {
    DeviceFileSystem fs;
    Descriptor file;
    uint64_t pages, count, seed;
    unsigned char* buffers;
    unsigned long long* result;  // += wrong reads, += bytes
};
PENSTOCK_GLOBAL void read_random(RandomJob job);
// Adds to job.result[0] how many words of the reads' places are wrong.
PENSTOCK_GLOBAL void check_random(RandomJob job);

// All warps of the grid copy `size` bytes, a multiple of 16 KiB, without any page cache.
struct PullJob {
    const unsigned char* from;
    unsigned char* to;
    uint64_t size;
};
PENSTOCK_GLOBAL void pull_bytes(PullJob job);

// Says how all of a file will be used.
PENSTOCK_GLOBAL void advise_file(DeviceFileSystem fs, Descriptor file, Advice advice);

// Adds to *wrong how many of the `size` / 8 words from `bytes` on are not those of a TestFile.
PENSTOCK_GLOBAL void check_bytes(const unsigned char* bytes, uint64_t size,
                                 unsigned long long* wrong);

}  // namespace penstock::bench
