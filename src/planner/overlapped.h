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
    // Fills `way`; `*bound_ns` is no more than the time of the best way through these cells.
    void find(const Cells& cells, const CostModel& model, CheapestWay& cheapest, Way* way,
              double* bound_ns);
    // Takes the memory for so many cells.
    void reserve(size_t cells);

private:
    struct Tried {
        Way way;
        Costs costs;
    };

    // Finds the best way for weights that add up to 1 and raises the bound by it.
    void try_weights(const Cells& cells, const CostModel& model, CheapestWay& cheapest,
                     double copy);
    // Whether another pass could gain more than it takes.
    [[nodiscard]] bool is_worth_more(const Cells& cells, const CostModel& model) const;
    void close_in(const Cells& cells, const CostModel& model, CheapestWay& cheapest);
    void cross(const Cells& cells, const CostModel& model, const Tried& first, const Tried& last);
    void keep_if_better(const CostModel& model, const Tried& tried);

    Tried light_;  // on the hull: copies take no longer than the storage
    Tried heavy_;  // its other side
    Tried tried_;
    Tried best_;
    Costs copies_;  // of the way that only copies
    double bound_ns_ = 0;
    // Of the two ways that are crossed: costs of the legs before each.
    std::vector<Costs> before_first_, before_last_;
};

}  // namespace penstock::planner
