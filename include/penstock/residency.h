// Which bytes of a file the OS page cache holds, told without reading one of them.
//
// A picture of one moment: other programs read and evict while it is looked at. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "penstock/route.h"
#include "penstock/status.h"

namespace penstock {

// Neighbouring bytes of one state.
struct ResidencyRange {
    uint64_t offset = 0;
    uint64_t size = 0;  // bytes
    Residency state = Residency::kUnknown;
    uint64_t resident_size = 0;  // of its bytes, those in the OS page cache; 0 where unknown
};

struct ResidencyReport {
    uint64_t size = 0;       // of the file
    uint64_t page_size = 0;  // of the OS page cache
    uint64_t grain = 0;      // bytes of the smallest piece that was told apart: a page, or more
                             // where the file is in more runs than were asked for
    std::vector<ResidencyRange> ranges;  // cover what was asked, without neighbours of one state
    std::array<uint64_t, kResidencyCount> bytes{};  // by Residency, the sums of `ranges`
    uint64_t resident_size = 0;
    // "cachestat", "mincore" (which cannot tell dirty from cached), both, or "unknown".
    std::string method;
    std::string reason;  // why not cachestat, or why nothing could be told; empty: no reason

    [[nodiscard]] uint64_t bytes_by(Residency state) const {
        return bytes[static_cast<size_t>(state)];
    }
};

struct ResidencyOptions {
    uint64_t offset = 0;         // look at bytes from here on
    uint64_t size = UINT64_MAX;  // so many, or to the end of the file
    // With more runs than this (at least 16, else EINVAL) pieces are told in larger grains, in
    // which what is cached in part is kMixed.
    uint64_t ranges_max = 65536;
    // Called now and then with the bytes that have been looked at and their number in all; false:
    // ECANCELED.
    std::function<bool(uint64_t, uint64_t)> on_progress;
};

// Asks the kernel about a regular file. Brings nothing into the cache. What this process may not
// know is kUnknown, never a guess: the kernel tells only who owns a file or may write it. Most FUSE
// file systems drop what is cached of a file when anybody opens it, so also here; File::residency()
// opens nothing.
//   path  as open(2); it must be readable
// Blocks for 0.1 to some 100 ms a GiB, most where a file lies in the cache in small pieces. Errors:
// those of open(2); EISDIR, ESPIPE, ENOTSUP for what is no regular file; ECANCELED; EINVAL.
[[nodiscard]] Result<ResidencyReport> residency(const std::string& path,
                                                const ResidencyOptions& options = {});

}  // namespace penstock
