// Which bytes of a file the OS page cache holds, found out without reading the file.
//
// A report shows one moment: other programs read and evict pages meanwhile. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "penstock/route.h"
#include "penstock/status.h"

namespace penstock {

// Adjacent bytes of one state.
struct ResidencyRange {
    uint64_t offset = 0;
    uint64_t size = 0;  // bytes
    Residency state = Residency::kUnknown;
    uint64_t resident_size = 0;  // bytes of it in the OS page cache; 0 where unknown
};

// What the OS page cache holds of a file, or of a range of it.
struct ResidencyReport {
    uint64_t size = 0;       // of the file
    uint64_t page_size = 0;  // of the OS page cache
    uint64_t grain = 0;      // bytes of the smallest piece that was examined: a page, or more where
                             // the file has more runs than `ranges_max`
    std::vector<ResidencyRange> ranges;  // cover the range asked for; adjacent states differ
    std::array<uint64_t, kResidencyCount> bytes{};  // by Residency, the sums of `ranges`
    uint64_t resident_size = 0;
    // "cachestat", "mincore" (which cannot tell dirty from cached), both, or "unknown".
    std::string method;
    std::string reason;  // why cachestat was not used, or why nothing is known; else empty

    [[nodiscard]] uint64_t bytes_by(Residency state) const {
        return bytes[static_cast<size_t>(state)];
    }
};

// Options of residency().
struct ResidencyOptions {
    uint64_t offset = 0;         // the first byte to look up
    uint64_t size = UINT64_MAX;  // bytes to look up, at most to the end of the file
    // Limit of runs, at least 16, else EINVAL. If the file has more runs, it is reported in larger
    // grains, and a grain that is cached in part is kMixed.
    uint64_t ranges_max = 65536;
    // Called from time to time with the bytes looked up so far and the bytes in all. If it returns
    // false, the call ends with ECANCELED.
    std::function<bool(uint64_t, uint64_t)> on_progress;
};

// Asks the kernel which bytes of a regular file are cached. Brings nothing into the cache.
//   path  as for open(2); the file must be readable
// The kernel tells only the owner of a file, and a process that may write it; for others the state
// is kUnknown, never a guess. Most FUSE file systems drop the cached pages of a file whenever it is
// opened, and so they do here; File::residency() opens nothing. Blocks for 0.1 ms to about 100 ms
// for each GiB, longest where the file is cached in small pieces. Errors: those of open(2); EISDIR
// for a directory; ESPIPE for a pipe or socket; ENOTSUP for a device file; ECANCELED; EINVAL.
[[nodiscard]] Result<ResidencyReport> residency(const std::string& path,
                                                const ResidencyOptions& options = {});

}  // namespace penstock
