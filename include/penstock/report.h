// What became of a read or write: which bytes took which route and why, what the OS page cache held
// before, and where the time went.
//
// Plain values. Sums hold: the bytes by route, by reason and by residency each add up to `bytes`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "penstock/route.h"

namespace penstock {

struct Report {
    uint64_t bytes_asked = 0;
    uint64_t bytes = 0;  // that arrived; fewer than asked: end of a file that is read, or
                         // `error_number`

    std::array<uint64_t, kRouteCount> route_bytes{};         // by Route
    std::array<uint64_t, kRouteReasonCount> reason_bytes{};  // by RouteReason
    // By Residency, as it was before. Unknown: not looked at (small requests, a route that was
    // asked for, writes), or nobody could tell.
    std::array<uint64_t, kResidencyCount> residency_bytes{};

    uint64_t queue_ns = 0;  // from the call until the first byte was asked for
    uint64_t plan_ns = 0;   // looking at residency and planning, over all threads
    uint64_t read_ns = 0;  // from the first byte asked for to the last that arrived in host memory,
                           // or in the file
    uint64_t copy_ns = 0;  // from then until the last was in device memory; 0: no copy
    uint64_t transfers = 0;  // storage operations
    // Direct reads in flight when one of these was started, the most: of all files of the same file
    // system that are read with the same device memory, storage, throttle and number of threads.
    // 0: none was.
    uint64_t direct_depth = 0;
    // What the plans of its parts expected them to take, one behind the other; 0: not planned.
    uint64_t predicted_ns = 0;

    // The first extent in file order that failed; error_number 0: none did.
    int error_number = 0;
    uint64_t error_offset = 0;
    Route error_route = Route::kCached;

    [[nodiscard]] uint64_t bytes_by(Route route) const {
        return route_bytes[static_cast<size_t>(route)];
    }
    [[nodiscard]] uint64_t bytes_by(RouteReason reason) const {
        return reason_bytes[static_cast<size_t>(reason)];
    }
    [[nodiscard]] uint64_t bytes_by(Residency state) const {
        return residency_bytes[static_cast<size_t>(state)];
    }
};

}  // namespace penstock
