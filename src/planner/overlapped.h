// The least time of a plan whose copies and direct transfers run at the same time.
//
// Which cells to give to which resource so that the later one ends soonest contains a partition
// problem. What is found: the ways that are best for some weight between the two sums (the lower
// hull of all (copy, direct) pairs, from both sides towards the point where they are equal), then a
// plan that follows one of the last two neighbours up to a cell and the other from there on. The
// weighted sums also bound the best plan from below, so every plan says how good it is at worst.
//
// Inside the room. Pure; one thread.
#pragma once

#include <vector>

#include "planner/cells.h"
#include "planner/cheapest.h"
#include "planner/costs.h"

namespace penstock::planner {

class OverlappedWay {
public:
    // Fills `steps`; `*bound_ns` is no more than the time of the best plan over these cells.
    void find(const Cells& cells, const CostModel& model, CheapestWay& way,
              std::vector<Step>* steps, double* bound_ns);

private:
    struct Way {
        std::vector<Step> steps;
        Costs costs;
    };

    // Finds the best way for weights that add up to 1 and raises the bound by it.
    void try_weights(const Cells& cells, const CostModel& model, CheapestWay& way, double copy);
    void close_in(const Cells& cells, const CostModel& model, CheapestWay& way);
    void cross(const Cells& cells, const CostModel& model, const Way& first, const Way& last);
    void keep_if_better(const CostModel& model, const Way& way);

    Way light_;  // on the hull: copies take no longer than the storage
    Way heavy_;  // its other side
    Way tried_;
    Way best_;
    Costs copies_;  // of the plan that only copies
    double bound_ns_ = 0;
    std::vector<Costs> prefix_;  // of the way that a crossed plan begins with
};

}  // namespace penstock::planner
