// A plan: which bytes of a request take which route, and what that will cost.
//
// Pure values; any thread.
#pragma once

#include <cstdint>
#include <span>

#include "extent/extent.h"
#include "penstock/route.h"

namespace penstock::planner {

// One planned movement of bytes.
struct Transfer {
    // What it delivers of the request. The ranges of a plan follow each other without gap or
    // overlap and add up to the request.
    extent::Extent range;
    // What it moves: `range`, and for a direct transfer at the request's ends perhaps bytes beside
    // it, up to the next boundary of alignment. They land beside the destination, where the request
    // said there is room. Behind the end of the file fewer bytes arrive.
    extent::Extent moved;
    Route route = Route::kCached;
    RouteReason reason = RouteReason::kResident;
    // Bytes of `range` that are in the OS page cache although the transfer is direct. The reason
    // of a direct transfer is kSwallowed only where this is all of it.
    uint64_t swallowed_size = 0;

    friend bool operator==(const Transfer&, const Transfer&) = default;
};

// Neighbouring cached transfers differ in their reasons only: one call may serve them all, and the
// costs count them as one.
struct Plan {
    std::span<const Transfer> transfers;  // by offset; the planner's, until its next plan
    double copy_ns = 0;                   // the thread that copies and submits is busy for
    double direct_ns = 0;     // from submission of the first direct transfer to the end of the last
    double predicted_ns = 0;  // the whole: of both at once, or of one behind the other where the
                              // algorithm assumes that
    // The same as it turns out: more where both take about as long (Costs::expected_ns).
    double expected_ns = 0;
    double beside_copies = 0;  // how much of the transfers runs beside copies, from 0 to 1
    // Below this no plan over the same cells can be, by the same model; predicted_ns less this is
    // the most that it may lack. 0: not known (the greedy rule, and what was asked for).
    double bound_ns = 0;
};

}  // namespace penstock::planner
