// The state of a file's bytes in the OS page cache, as runs of one state.
//
// Pure: describes one moment. `storage` makes it, `planner` reads it.
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
    // Bytes of the run that are in the OS page cache: 0 for kMissing and kUnknown, all for kCached.
    uint64_t resident_size = 0;
    friend constexpr bool operator==(const ResidencyRun&, const ResidencyRun&) = default;
};

// Returns whether `runs` cover `range` in order, without a gap, an overlap or an empty run.
[[nodiscard]] constexpr bool covers(std::span<const ResidencyRun> runs, const Extent& range) {
    uint64_t at = range.offset;
    for (const ResidencyRun& run : runs) {
        if (run.range.empty() || run.range.offset != at) return false;
        at = run.range.end();
    }
    return at == range.end();
}

// Appends `run`, which must begin where the last of the first `*count` runs ends. It is joined to
// that one if the states are equal. Returns false and changes nothing if there is no room.
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
