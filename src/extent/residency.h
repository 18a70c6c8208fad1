// Which bytes of a file the OS page cache holds: runs of one state.
//
// Pure: a picture of one moment, taken by `storage`, read by `planner`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "extent/extent.h"
#include "penstock/route.h"

namespace penstock::extent {

using penstock::Residency;

struct ResidencyRun {
    Extent range;
    Residency state = Residency::kUnknown;
    // Bytes of it that are in the OS page cache: 0 of kMissing and kUnknown, all of kCached.
    uint64_t resident_size = 0;
    friend constexpr bool operator==(const ResidencyRun&, const ResidencyRun&) = default;
};

// Whether `runs` cover `range` in order, without gap, overlap or empty run.
[[nodiscard]] constexpr bool covers(std::span<const ResidencyRun> runs, const Extent& range) {
    uint64_t at = range.offset;
    for (const ResidencyRun& run : runs) {
        if (run.range.empty() || run.range.offset != at) return false;
        at = run.range.end();
    }
    return at == range.end();
}

// Puts `run`, which begins where the last of the first `*count` runs ends, behind them or into the
// last one if that has its state. False: there is no room, and nothing was changed.
[[nodiscard]] constexpr bool append_run(std::span<ResidencyRun> runs, size_t* count,
                                        const ResidencyRun& run) {
    if (run.range.empty()) return true;
    if (*count > 0 && runs[*count - 1].state == run.state) {
        runs[*count - 1].range.size += run.range.size;
        runs[*count - 1].resident_size += run.resident_size;
        return true;
    }
    if (*count == runs.size()) return false;
    runs[(*count)++] = run;
    return true;
}

}  // namespace penstock::extent
