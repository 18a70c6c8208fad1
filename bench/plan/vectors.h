// Random pictures of what the OS page cache holds of 8 MiB: the vectors that plans are made for.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/prng.h"
#include "base/units.h"
#include "extent/residency.h"

namespace penstock::bench {

inline constexpr uint64_t kVectorSize = 8 * base::kMiB;
inline constexpr uint64_t kPageSize = 4096;
inline constexpr uint64_t kVectorPages = kVectorSize / kPageSize;

using Runs = std::vector<extent::ResidencyRun>;

// Runs of cached and missing pages in turn, from `offset` on; their mean lengths are random from 1
// page to 2 MiB (every power of two as likely as another), and so is the share that is cached.
inline Runs random_vector(base::Prng& prng, uint64_t offset) {
    const double mean = std::exp2(9 * prng.fraction());
    const double share = 0.1 + 0.8 * prng.fraction();
    bool cached = prng.fraction() < share;
    Runs runs;
    for (uint64_t page = 0; page < kVectorPages; cached = !cached) {
        const double long_run = 2 * mean * (cached ? share : 1 - share);
        auto pages = static_cast<uint64_t>(1 - long_run * std::log(1 - prng.fraction()));
        pages = std::min(pages, kVectorPages - page);
        runs.push_back({{offset + page * kPageSize, pages * kPageSize},
                        cached ? extent::Residency::kCached : extent::Residency::kMissing});
        page += pages;
    }
    return runs;
}

}  // namespace penstock::bench
