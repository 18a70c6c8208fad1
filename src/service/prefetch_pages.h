// The kernel that brings pages into the cache before a kernel that is known to read them.
//
// Found in the registry by its key, so that programs that link this room alone do without.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/kernel.h"

namespace penstock::service {

constexpr const char* kPrefetchPagesKey = "penstock/penstock::service::prefetch_pages";
constexpr unsigned kPrefetchThreads = 128;

struct PrefetchRange {
    Descriptor file;
    uint64_t first, count;  // pages
};

// Asks for the pages of `count` ranges that are not there, block b for those of every gridDim-th
// range from the b-th on, and waits for them. What cannot be read, or has no room, is left to who
// wants it.
PENSTOCK_GLOBAL void prefetch_pages(FileSystemState* state, const PrefetchRange* ranges,
                                    uint64_t count);

}  // namespace penstock::service
