// The cells of the route benchmark: what the OS page cache holds × how much is asked for at once ×
// aligned or not × free or capped disk; and what a run of each reads.
//
// Pure: values only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"
#include "bench/harness/cache_state.h"

namespace penstock::bench {

inline constexpr uint64_t kRouteFileSize = 256 * base::kMiB;
// Behind that, for requests that are shifted; cached in hot cells only.
inline constexpr uint64_t kRouteFileTail = base::kMiB;
inline constexpr uint64_t kShift = 13;  // bytes

struct Pattern {
    unsigned cached_percent = 0;  // 0 cold, 100 hot
    uint64_t run_size = 0;        // what is cached lies in runs of this; a page: anywhere

    [[nodiscard]] bool mixed() const { return cached_percent > 0 && cached_percent < 100; }
    [[nodiscard]] bool hot() const { return cached_percent == 100; }
    friend bool operator==(const Pattern&, const Pattern&) = default;
};

struct Cell {
    Pattern pattern;
    uint64_t request_size = 0;
    bool shifted = false;  // offsets + 13, to the same page-aligned memory
    bool capped = false;   // the disk behind a throttle
};

struct ReadRequest {
    uint64_t offset = 0;
    uint64_t place = 0;  // in the destination
};

// "capped-mixed50-runs4m-16m+13".
[[nodiscard]] std::string name(const Cell& cell);
// Neighbours have one pattern. The whole sweep; else those that a default run takes.
[[nodiscard]] std::vector<Cell> route_cells(bool full, bool smoke);
// Of the whole sweep.
[[nodiscard]] size_t route_cell_count();

// Which pages of the file are cached. The share is exact in every 16 MiB (runs of 4 MiB), in the
// file (runs of 64 MiB), and on average (pages).
[[nodiscard]] PageMap cached_pages(const Pattern& pattern);
// What one pass reads, in file order: a sample of stretches in which the share of what is cached is
// that of the pattern; every byte of the destination once.
[[nodiscard]] std::vector<ReadRequest> pass_requests(const Cell& cell);
// Passes of one run: small hot reads are over too soon to be timed alone.
[[nodiscard]] unsigned passes(const Cell& cell);

}  // namespace penstock::bench
