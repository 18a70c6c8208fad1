// Brings what the OS page cache holds of a file to a wanted state, page by page, and says whether
// it is so.
//
// mincore tells, which is right for the owner of a file. DONTNEED leaves pages that somebody is
// about to read or has just read, so it is asked again until none is left. Only what differs is
// touched: pages that stay cached keep the folios they are in, which decide how fast they are
// copied. One thread an object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/harness/test_file.h"

namespace penstock::bench {

inline constexpr uint64_t kCachePage = 4096;

// For each page of a file: 1 cached, 0 not.
using PageMap = std::vector<unsigned char>;

// Marks one, two or three of every four runs of `run_pages` as cached, drawn at random, in the
// first `pages` of the map. `pages` is a multiple of four runs.
void mark_runs(PageMap* map, size_t pages, size_t run_pages, unsigned of_four, uint64_t seed);

class CacheState {
public:
    // The file must outlive it.
    explicit CacheState(const TestFile& file);
    ~CacheState();
    CacheState(const CacheState&) = delete;
    CacheState& operator=(const CacheState&) = delete;

    [[nodiscard]] uint64_t pages() const { return now_.size(); }
    // From nothing, as a program that read long runs of the file from start to end would have left
    // it: pages in folios as large as the kernel makes them, where runs are 1 MiB and more. To be
    // called before set() when another state was there.
    void lay(const PageMap& wanted);
    // Makes the state `wanted`. False: some pages stayed otherwise.
    bool set(const PageMap& wanted);
    // Pages that are otherwise than wanted now.
    [[nodiscard]] uint64_t wrong_pages(const PageMap& wanted);

private:
    void look();
    void evict(const PageMap& wanted);
    void fill(const PageMap& wanted);

    const TestFile& file_;
    int random_;  // a descriptor whose reads bring in nothing but what they ask for
    void* map_;   // never touched: pages in page tables cannot be evicted
    PageMap now_;
};

}  // namespace penstock::bench
