// The kernel by which the host drops a file's pages, if it cannot address the page table itself.
//
// The registry finds it by its key, so that a program that links only this room works without it.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/kernel.h"

namespace penstock::service {

constexpr const char* kDropPagesKey = "penstock/penstock::service::drop_pages";
constexpr unsigned kDropThreads = 128;

// Drops the pages of `count` directory words from `first` on. Each thread handles every
// kDropThreads-th word. Adds to `*kept` (device memory) the count of words with a page that is
// held.
PENSTOCK_GLOBAL void drop_pages(FileSystemState* state, uint64_t first, uint64_t count,
                                unsigned long long* kept);

}  // namespace penstock::service
