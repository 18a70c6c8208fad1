// Plans requests: applies their options, asks for residency, runs the planner, and cuts the plan
// into transfers that one operation can make. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/planner.h"
#include "transfer/active_request.h"

namespace penstock::transfer {

class RequestPlanner {
public:
    // `depth` is the number of slots of the executor's staging.
    explicit RequestPlanner(uint32_t depth);

    // Sets the transfers of a request that has just begun. If a part of it cannot take the route
    // that `strict` insists on, it has no transfer and the request stops there.
    void plan(ActiveRequest* active);

private:
    void plan_read(ActiveRequest* active);
    void plan_write(ActiveRequest* active);
    Result<planner::Plan> make_plan(ActiveRequest* active);
    void ask_residency(ActiveRequest* active, const planner::CostModel& model);
    [[nodiscard]] uint64_t missing_in(const extent::Extent& range) const;
    void cut(ActiveRequest* active, std::span<const planner::Transfer> transfers) const;
    [[nodiscard]] std::span<const extent::ResidencyRun> runs() const {
        return std::span(runs_).first(run_count_);
    }

    const uint32_t depth_;
    planner::Planner planner_;
    std::vector<extent::ResidencyRun> runs_;  // the answer to the last question
    size_t run_count_ = 0;
};

}  // namespace penstock::transfer
