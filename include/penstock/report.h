// The report of a read or write: which bytes took which route and why, what the OS page cache held
// before, and where the time went.
//
// Plain values. The bytes by route, by reason and by residency each add up to `bytes`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "penstock/route.h"

namespace penstock {

// The report of one read or write; of a vectored one, over all its pieces.
struct Report {
    uint64_t bytes_asked = 0;
    // Where in the file the first byte is. Of an append: where it went, known when it has ended.
    uint64_t offset = 0;
    uint64_t bytes = 0;  // bytes moved; fewer than asked at the end of a file that is read, or
                         // after `error_number`

    std::array<uint64_t, kRouteCount> route_bytes{};         // by Route
    std::array<uint64_t, kRouteReasonCount> reason_bytes{};  // by RouteReason
    // By Residency, as it was before. Unknown: the residency was not looked up (small requests, a
    // requested route, writes), or it could not be determined.
    std::array<uint64_t, kResidencyCount> residency_bytes{};

    uint64_t queue_ns = 0;   // from the call until the first byte was requested
    uint64_t plan_ns = 0;    // time to look up residency and to plan, summed over all threads
    uint64_t read_ns = 0;    // from the first byte requested to the last byte in host memory, or in
                             // the file
    uint64_t copy_ns = 0;    // from then until the last byte was in device memory; 0: no copy
    uint64_t transfers = 0;  // storage operations
    // The most direct reads that were in flight when one of these was started. Counted over all
    // files of one file system that are read with the same device memory, storage, throttle and
    // number of threads. 0: there were no direct reads.
    uint64_t direct_depth = 0;
    // Sum of the times that the plans of its parts predicted; 0: it was not planned.
    uint64_t predicted_ns = 0;

    // The first extent, in file order, that failed. error_number 0: none failed.
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

// Returns one line: bytes by route and by reason, and the times.
[[nodiscard]] std::string explain(const Report& report);

}  // namespace penstock
