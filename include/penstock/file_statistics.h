// What kernels did with files.
#pragma once

#include <cstdint>

namespace penstock {

// What kernels did with a file since the file system knows it, or with all of them. Pages are
// counted each time that a call wants them. Counted relaxed: a moment's picture.
struct FileStatistics {
    uint64_t pages = 0;        // that calls wanted: hits + misses + window hits + late ones
    uint64_t hits = 0;         // were in the cache, or on their way for somebody else
    uint64_t misses = 0;       // were asked for and waited for
    uint64_t window_hits = 0;  // were there, read ahead by windows
    uint64_t window_late = 0;  // were on their way, likewise
    uint64_t prefetched = 0;   // pages that windows asked for; of those used: the two before
    uint64_t wasted = 0;       // pages of windows that were given up unused
    uint64_t advised = 0;      // pages that gadvise(kWillNeed) asked for
    uint64_t learned = 0;      // pages asked for ahead of launches
    uint64_t stalled_ns = 0;   // that calls waited for pages and for room: summed over the warps of
                               // a GPU, over the blocks of the CPU backend
};

}  // namespace penstock
