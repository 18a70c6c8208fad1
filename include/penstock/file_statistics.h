// What kernels did with files.
#pragma once

#include <cstdint>

namespace penstock {

// Counts of what kernels did with one file since the file system first opened it, or with all
// files. A page is counted each time that a call wants it. The counters are relaxed atomics:
// together they show no single moment exactly.
struct FileStatistics {
    uint64_t pages = 0;        // pages that calls wanted: the sum of the next four
    uint64_t hits = 0;         // pages in the cache, or in flight for another call
    uint64_t misses = 0;       // pages that the call requested and waited for
    uint64_t window_hits = 0;  // pages that readahead windows had brought into the cache
    uint64_t window_late = 0;  // pages that readahead windows had requested and that were in flight
    uint64_t prefetched = 0;   // pages that windows requested; used: window_hits + window_late
    uint64_t wasted = 0;       // pages of windows that were evicted unused
    uint64_t advised = 0;      // pages that gadvise(kWillNeed) requested
    uint64_t learned = 0;      // pages requested ahead of launches
    uint64_t stalled_ns = 0;   // time that calls waited for pages and for room, summed over the
                               // warps of a GPU, or over the blocks of the CPU backend
                               // a GPU, over the blocks of the CPU backend
};

}  // namespace penstock
