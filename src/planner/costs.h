// Computes what a way through the cells costs each of the two resources.
//
// Used only in this room. Pure; one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "planner/cells.h"

namespace penstock::planner {

struct Costs {
    double copy_ns = 0;      // the thread that copies, waits for missing pages, and submits
    double direct_ns = 0;    // storage, for direct transfers; without direct_start_ns
    double shared_ns = 0;    // storage, for missing pages while that thread waits for them
    uint32_t transfers = 0;  // direct ones

    Costs& operator+=(const Costs& other) {
        copy_ns += other.copy_ns;
        direct_ns += other.direct_ns;
        shared_ns += other.shared_ns;
        transfers += other.transfers;
        return *this;
    }

    [[nodiscard]] double start_ns(const CostModel& model) const {
        return transfers > 0 ? model.direct_start_ns : 0;
    }
    [[nodiscard]] double storage_ns(const CostModel& model) const {
        return direct_ns + shared_ns + start_ns(model);
    }
    // The time if the two resources work one after the other.
    [[nodiscard]] double serial_ns(const CostModel& model) const {
        return copy_ns + direct_ns + start_ns(model);
    }
    // Returns how much the transfers suffer from copies, from 0 to 1. 0: the thread only submits
    // and waits. 1: it copies for enough of the time to slow all transfers down.
    [[nodiscard]] double beside_copies(const CostModel& model) const {
        constexpr double kShare = 0.1;
        if (transfers == 0) return 0;
        const double copies_ns = copy_ns - transfers * model.direct_submit_ns;
        return std::clamp(copies_ns / (kShare * storage_ns(model)), 0.0, 1.0);
    }
    // Returns the factor by which copies lengthen the transfers.
    [[nodiscard]] double stretch(const CostModel& model) const {
        return 1 + (model.direct_beside_copies - 1) * beside_copies(model);
    }
    // The time if the two resources work at the same time.
    [[nodiscard]] double overlapped_ns(const CostModel& model) const {
        return std::max(copy_ns, storage_ns(model));
    }
    // The time that is really expected if both work at the same time. It is longer for three
    // reasons: the later of two varying ends is later than either is on average, copies and
    // transfers share the memory, and a thread that copies sees completions late. Measured: plans
    // whose halves take equally long take a quarter more (bench plan; 0007).
    [[nodiscard]] double expected_ns(const CostModel& model) const {
        constexpr double kLoss = 0.25;
        const double later = std::max(copy_ns, stretch(model) * storage_ns(model));
        // The storage's work for pages that the thread waits for is already in copy_ns.
        const double transfers_ns = stretch(model) * (direct_ns + start_ns(model));
        const double copies_ns = copy_ns - transfers * model.direct_submit_ns;
        const double balance = later > 0 ? std::min(copies_ns, transfers_ns) / later : 0;
        return later * (1 + kLoss * std::pow(balance, 4));
    }
};

// Returns the costs of one leg alone. A copied leg pays for entering the page cache.
[[nodiscard]] inline Costs costs_of(const Cells& cells, const CostModel& model, const Leg& leg) {
    if (leg.first == leg.last) return {};
    if (!leg.copied) {
        return {model.direct_submit_ns, model.direct_time(cells.size(leg.first, leg.last)), 0, 1};
    }
    const CellEnd &from = cells.ends[leg.first], &to = cells.ends[leg.last];
    const bool continues = (cells.flags[leg.first] & CellFlags::kContinues) != 0;
    const double waits = to.waits - from.waits + (continues ? 1 : 0);
    const double missing = to.missing - from.missing;
    const double resident = (to.wanted - from.wanted) - (to.missing - from.missing);
    return {model.cached_ns + waits * model.buffered_ns + missing * model.buffered_ns_per_byte +
                resident * model.cached_ns_per_byte,
            0, waits * model.direct_ns + missing * model.direct_ns_per_byte, 0};
}

[[nodiscard]] inline Costs costs_of(const Cells& cells, const CostModel& model, const Way& way) {
    Costs sum;
    for (const Leg& leg : way) sum += costs_of(cells, model, leg);
    return sum;
}

}  // namespace penstock::planner
