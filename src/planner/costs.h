// What a way through the cells costs each of the two resources.
//
// Inside the room. Pure; one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "planner/cells.h"

namespace penstock::planner {

struct Costs {
    double copy_ns = 0;    // the thread that copies, waits for missing pages, and submits
    double direct_ns = 0;  // storage, for direct transfers; without direct_start_ns
    double shared_ns = 0;  // storage, for missing pages while that thread waits for them
    size_t transfers = 0;  // direct ones

    // One after the other.
    [[nodiscard]] double serial_ns(const CostModel& model) const {
        return copy_ns + direct_ns + start_ns(model);
    }
    // Both at once.
    [[nodiscard]] double overlapped_ns(const CostModel& model) const {
        return std::max(copy_ns, direct_ns + shared_ns + start_ns(model));
    }
    [[nodiscard]] double start_ns(const CostModel& model) const {
        return transfers > 0 ? model.direct_start_ns : 0;
    }
};

// Adds up cells in order, forwards or backwards; at each end it tells what the cells so far cost,
// a transfer that goes on counted as if it ended there.
class CostsSoFar {
public:
    CostsSoFar(const Cells& cells, const CostModel& model) : cells_(cells), model_(model) {}

    // `begins`: a direct transfer has its first cell (in the order of adding) here.
    void add(size_t cell, bool copied, bool begins) {
        if (copied) {
            add_copy(cell);
            return;
        }
        if (begins) {
            before_ns_ = costs_.direct_ns;
            size_ = 0;
            ++costs_.transfers;
            costs_.copy_ns += model_.direct_submit_ns;
        }
        size_ += cells_.width(cell);
        costs_.direct_ns = before_ns_ + model_.direct_time(size_);
        in_copy_ = in_wait_ = false;
    }
    [[nodiscard]] const Costs& costs() const { return costs_; }

private:
    void add_copy(size_t cell) {
        const bool missing = (cells_.flags[cell] & CellFlags::kMissing) != 0;
        const auto size = static_cast<double>(cells_.wanted_size(cell));
        if (!in_copy_) costs_.copy_ns += model_.cached_ns;
        if (missing) {
            if (!in_wait_) {
                costs_.copy_ns += model_.buffered_ns;
                costs_.shared_ns += model_.direct_ns;
            }
            costs_.copy_ns += size * model_.buffered_ns_per_byte;
            costs_.shared_ns += size * model_.direct_ns_per_byte;
        } else {
            costs_.copy_ns += size * model_.cached_ns_per_byte;
        }
        in_copy_ = true;
        in_wait_ = missing;
    }

    const Cells& cells_;
    const CostModel& model_;
    Costs costs_;
    bool in_copy_ = false;  // the cell before is copied
    bool in_wait_ = false;  // and missing
    double before_ns_ = 0;  // direct_ns in front of the transfer that goes on
    uint64_t size_ = 0;     // of it
};

[[nodiscard]] inline Costs costs_of(const Cells& cells, const CostModel& model,
                                    std::span<const Step> steps) {
    CostsSoFar sum(cells, model);
    for (size_t i = 0; i < steps.size(); ++i)
        sum.add(i, steps[i] == Step::kCopy, steps[i] == Step::kBegin);
    return sum.costs();
}

}  // namespace penstock::planner
