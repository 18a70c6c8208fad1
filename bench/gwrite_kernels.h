// The kernels of the gwrite benchmark.
//
// What is written comes from `source`, which is laid out as the file: the 8-byte word at offset o
// is stamp(o), but for the checked word of each 4 KiB (bench/harness/test_file.h), which has the
// number of the run over it: written_word(o, run).
#pragma once

#include <cstdint>

#include "bench/harness/test_file.h"
#include "penstock/device/handle.h"
#include "penstock/kernel.h"

namespace penstock::bench {

PENSTOCK_BOTH constexpr uint64_t written_word(uint64_t offset, uint64_t run) {
    return stamp(offset) ^ (run << 1);
}

struct WriteJob {
    DeviceFileSystem fs;
    Descriptor file;
    uint64_t size;          // bytes of the file: a multiple of `step`
    uint64_t request_size;  // written at each multiple of `step`
    uint64_t step;
    const unsigned char* source;
    unsigned long long* result;  // += calls that failed, += bytes
};

// Blocks write the file's requests in turn.
PENSTOCK_GLOBAL void write_stream(WriteJob job);

// Operation i is of page random_page(seed, i, pages): pages of an odd number are written from the
// source, others read into the block's 4 KiB of `buffers`.
struct MixedJob {
    DeviceFileSystem fs;
    Descriptor file;
    uint64_t pages, count, seed;
    const unsigned char* source;
    unsigned char* buffers;
    unsigned long long* result;  // += what was wrong, += bytes
};
PENSTOCK_GLOBAL void write_random(MixedJob job);

// Adds one to the word of 8 bytes at each multiple of `step`.
struct CountJob {
    DeviceFileSystem fs;
    Descriptor file;
    uint64_t count, step;
    unsigned long long* words;  // one for each block
    unsigned long long* wrong;  // += calls that failed
};
PENSTOCK_GLOBAL void count_up(CountJob job);

// Makes `source` what run `run` writes; all of it, or only the checked words.
PENSTOCK_GLOBAL void fill_source(unsigned char* source, uint64_t size, uint64_t run, bool all);

}  // namespace penstock::bench
