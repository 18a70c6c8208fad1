// Which bytes of a file the OS page cache holds: runs of one state.
//
// Pure: a picture of one moment, taken by `storage`, read by `planner`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "extent/extent.h"

namespace penstock::extent {

enum class Residency : uint8_t {
    kMissing,  // not in the OS page cache
    kCached,   // there, and the same as on storage
    kDirty,    // there, with bytes that storage has not
    kUnknown,  // nobody could tell
};
inline constexpr size_t kResidencyCount = 4;

struct ResidencyRun {
    Extent range;
    Residency state = Residency::kUnknown;
    friend constexpr bool operator==(const ResidencyRun&, const ResidencyRun&) = default;
};

// "missing", "cached", "dirty", "unknown".
[[nodiscard]] constexpr const char* name(Residency state) {
    switch (state) {
        case Residency::kMissing:
            return "missing";
        case Residency::kCached:
            return "cached";
        case Residency::kDirty:
            return "dirty";
        case Residency::kUnknown:
            return "unknown";
    }
    return "";
}

// Whether `runs` cover `range` in order, without gap, overlap or empty run.
[[nodiscard]] constexpr bool covers(std::span<const ResidencyRun> runs, const Extent& range) {
    uint64_t at = range.offset;
    for (const ResidencyRun& run : runs) {
        if (run.range.empty() || run.range.offset != at) return false;
        at = run.range.end();
    }
    return at == range.end();
}

}  // namespace penstock::extent
