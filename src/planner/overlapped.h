// Finds a plan of least time, where copies and direct transfers run at the same time.
//
// To divide the cells between two resources so that the later one ends soonest contains a partition
// problem. So the search is in two steps. First it finds the ways that are best for some weight
// between the two sums. These form the lower hull of all (copy, direct) pairs, and the search
// approaches from both sides the point where the two are equal. Then it takes the last two
// neighbours on the hull, and finds a plan that follows one of them up to a cell and the other from
// there on. The weighted sums also bound the best plan from below, so each plan states how far from
// the best it can be.
//
// Used only in this room. Pure; one thread.
#pragma once

#include <vector>

#include "planner/cells.h"
#include "planner/cheapest.h"
#include "planner/costs.h"

namespace penstock::planner {

class OverlappedWay {
public:
    // Fills `way`. `*bound_ns` is at most the time of the best way through these cells.
    void find(const Cells& cells, const CostModel& model, CheapestWay& cheapest, Way* way,
              double* bound_ns);
    // Takes the memory for `cells` cells.
    void reserve(size_t cells);

private:
    struct Tried {
        Way way;
        Costs costs;
    };

    // Finds the best way for the weights `copy` and 1 - `copy`, and raises the bound by it.
    void try_weights(const Cells& cells, const CostModel& model, CheapestWay& cheapest,
                     double copy);
    // Returns whether another pass could gain more time than it takes.
    [[nodiscard]] bool is_worth_more(const Cells& cells, const CostModel& model) const;
    void close_in(const Cells& cells, const CostModel& model, CheapestWay& cheapest);
    void cross(const Cells& cells, const CostModel& model, const Tried& first, const Tried& last);
    void keep_if_better(const CostModel& model, const Tried& tried);

    Tried light_;  // on the hull: copies take no longer than the storage
    Tried heavy_;  // on the hull, on the other side
    Tried tried_;
    Tried best_;
    Costs copies_;  // of the way that only copies
    double bound_ns_ = 0;
    // For the two ways that are crossed: the costs of the legs before each leg.
    std::vector<Costs> before_first_, before_last_;
};

}  // namespace penstock::planner
