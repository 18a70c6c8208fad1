// The kernel by which the host drops a file's pages where it cannot address the page table itself.
//
// Found in the registry by its key, so that programs that link this room alone do without.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/kernel.h"

namespace penstock::service {

constexpr const char* kDropPagesKey = "penstock/penstock::service::drop_pages";
constexpr unsigned kDropThreads = 128;

// Drops the pages of `count` directory words from `first` on, each thread every kDropThreads-th of
// them; adds to `*kept` (device memory) the words of which a page was held.
PENSTOCK_GLOBAL void drop_pages(FileSystemState* state, uint64_t first, uint64_t count,
                                unsigned long long* kept);

}  // namespace penstock::service
