// What the scan kernel is given and what it writes: a batch of strides of files, and a record for
// each.
//
// The host fills a batch, launches, and reads it after the launch; see scan.cu for the kernel and
// batch_queue.h for the host's side. Plain data for both compilers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/abi/file_system.h"
#include "penstock/device/file.cuh"
#include "scan/matcher.cuh"

namespace penstock::scan {

constexpr uint64_t kNoEntries = ~uint64_t{0};
constexpr unsigned kScanThreadsMax = 256;  // GPU threads a block

// One stride of a file. Written by the host, read by GPU threads; pinned memory.
struct StrideJob {
    Descriptor file;
    uint64_t offset;  // bytes into the file, a multiple of the stride except behind a grown end
    uint32_t size;    // bytes that this stride owns
    uint32_t reach;   // bytes to read: size and, to see matches whole, up to the longest pattern
                      // less 1
    const uint8_t* mapped;  // CPU backend: where `reach` bytes and kTextPadding lie in host memory;
                            // null: they are read with gread
};

// The answer for one stride. Written by one block, read by the host after the launch; pinned
// memory.
struct StrideRecord {
    SliceRecord lines;
    int64_t read_size;  // what gread returned: fewer bytes than `reach` at the end of the file, or
                        // -errno
    uint64_t first_entry;  // its entries are [first_entry, first_entry + entry_count) of
                           // ScanBatch::entries, or kNoEntries: none, or they did not fit and are
                           // asked for again
    uint64_t entry_count;
};

// What a block has done since the scan began; pinned memory, one writer (the block's first thread),
// host reads.
struct alignas(64) BlockWords {
    uint64_t done_size;  // bytes of finished strides
    uint64_t read_ns;    // time in gread
    uint64_t search_ns;  // time in the search
};

// Counters of one launch, device memory, zeroed by the host before it; GPU threads add.
struct alignas(64) BatchCounters {
    unsigned long long next_stride;
    unsigned long long entry_tail;
};

// By value to the kernel. Pointers are addresses that GPU threads can load.
struct ScanBatch {
    const PatternTable* table;  // device memory
    const StrideJob* jobs;      // pinned
    StrideRecord* records;      // pinned
    LineEntry* entries;         // pinned
    BlockWords* blocks;         // pinned; one for each block of the grid
    const uint64_t* stop;       // pinned; not 0: blocks leave before their next stride
    BatchCounters* counters;    // device memory
    uint8_t* buffers;           // device memory; buffer_size for each block
    uint64_t buffer_size;       // at least the largest reach and kTextPadding
    uint64_t stride_count;
    uint64_t entry_capacity;
    Wanted wanted;  // kCount, or kNumbers: with entries
};

}  // namespace penstock::scan
