// A plan: which bytes of a request take which route, and the predicted cost.
//
// Pure values; any thread.
#pragma once

#include <cstdint>
#include <span>

#include "extent/extent.h"
#include "penstock/route.h"

namespace penstock::planner {

// One planned transfer of bytes.
struct Transfer {
    // The part of the request that it delivers. The ranges of a plan follow each other without gap
    // or overlap, and add up to the request.
    extent::Extent range;
    // The bytes that it moves: `range`, and for a direct transfer at an end of the request perhaps
    // bytes up to the next alignment boundary. Those land beside the destination, where the request
    // allows it (room_before, room_behind). Beyond the end of the file fewer bytes arrive.
    extent::Extent moved;
    Route route = Route::kCached;
    RouteReason reason = RouteReason::kResident;
    // Bytes of `range` that are in the OS page cache although the transfer is direct. The reason of
    // a direct transfer is kSwallowed only if that is all of `range`.
    uint64_t swallowed_size = 0;

    friend bool operator==(const Transfer&, const Transfer&) = default;
};

// Neighbouring cached transfers differ only in their reasons. One call may serve them all, and the
// costs count them as one.
struct Plan {
    std::span<const Transfer> transfers;  // by offset; valid until the planner's next plan
    double copy_ns = 0;                   // how long the copying and submitting thread is busy
    double direct_ns = 0;                 // from the first direct submission to the last completion
    double predicted_ns = 0;              // of the whole, in parallel or in sequence, by algorithm
    // predicted_ns with the losses of real executions, which are larger if both take about as long
    // (Costs::expected_ns).
    double expected_ns = 0;
    double beside_copies = 0;  // share of the transfers that runs beside copies, from 0 to 1
    // By the same model, no plan over the same cells takes less. predicted_ns - bound_ns is the
    // most that this plan may lose. 0: not known (the greedy rule, and plans that the caller asked
    // for).
    double bound_ns = 0;
};

}  // namespace penstock::planner
