// The kernel that brings pages into the cache before a kernel that is known to read them.
//
// The registry finds it by its key, so that a program that links only this room works without it.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/kernel.h"

namespace penstock::service {

constexpr const char* kPrefetchPagesKey = "penstock/penstock::service::prefetch_pages";
constexpr unsigned kPrefetchThreads = 128;

struct PrefetchRange {
    Descriptor file;
    uint64_t first, count;  // in pages
};

// Requests the missing pages of `count` ranges and waits for them. Block b handles every gridDim-th
// range from the b-th on. Pages that cannot be read or have no room are left to the kernel that
// wants them.
PENSTOCK_GLOBAL void prefetch_pages(FileSystemState* state, const PrefetchRange* ranges,
                                    uint64_t count);

}  // namespace penstock::service
