// The cells of the tio benchmark: size of a read × order × threads × what the OS page cache holds;
// and what each thread of a run reads.
//
// Pure: values only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"
#include "bench/harness/cache_state.h"

namespace penstock::bench {

inline constexpr unsigned kTioThreadsMax = 4;
inline constexpr uint64_t kTioFileSize = 64 * base::kMiB;  // each thread has a file

struct TioCell {
    uint64_t size = 0;  // of a read
    bool random = false;
    unsigned threads = 1;
    unsigned cached_percent = 0;  // 0, 50 or 100

    [[nodiscard]] bool mixed() const { return cached_percent == 50; }
    [[nodiscard]] bool hot() const { return cached_percent == 100; }
};

struct TioRead {
    uint64_t offset = 0;
    uint64_t place = 0;  // in the thread's part of the destination
};

// Returns "random-512k-4t-mixed50".
[[nodiscard]] std::string name(const TioCell& cell);
// Returns the cells of a run; neighbours have the same cache state.
[[nodiscard]] std::vector<TioCell> tio_cells(bool full, bool smoke);
// Returns the number of cells of the whole grid.
[[nodiscard]] size_t tio_cell_count();

// Returns which pages of a thread's file are cached. Half of every 16 MiB is cached, in runs of 4
// MiB, where half of the file is.
[[nodiscard]] PageMap tio_cached_pages(unsigned cached_percent, unsigned thread);
// Returns what one pass of a thread reads: every page at most once, and half of the bytes from the
// cache where half of the file is cached.
[[nodiscard]] std::vector<TioRead> tio_reads(const TioCell& cell, unsigned thread);
// Returns the passes of one run: hot reads are over too soon to be timed alone.
[[nodiscard]] unsigned tio_passes(const TioCell& cell);
// Returns the bytes of the destination that one thread needs.
[[nodiscard]] uint64_t tio_part_size(unsigned threads);

}  // namespace penstock::bench
