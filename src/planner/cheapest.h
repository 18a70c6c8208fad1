// The cheapest way through a row of cells, where each is copied or belongs to a direct transfer:
// exact, in linear time.
//
// With G(p) the least cost of the cells before p, a direct transfer that ends at p costs
// min over x of G(x) + T(p - x). T is flat up to the cutoff and linear beyond, and G never
// decreases. So among starts within the cutoff the first is best; among those beyond it the least
// of G(x) - x/BW counts, a minimum over a window that slides (a monotone queue).
//
// Inside the room. Pure; one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/cells.h"

namespace penstock::planner {

// What a nanosecond of each of Costs counts.
struct Weights {
    double copy = 1;
    double direct = 1;
    double shared = 0;
};

class CheapestWay {
public:
    // Fills `steps`, one for each cell, and returns the weighted cost, which counts no
    // direct_start_ns. `model` is sane().
    double find(const Cells& cells, const CostModel& model, const Weights& weights,
                std::vector<Step>* steps);

private:
    void trace_back(bool copied, std::vector<Step>* steps) const;

    std::vector<double> cost_;     // G of each end
    std::vector<uint32_t> from_;   // of each end: how it was reached; see cheapest.cc
    std::vector<uint32_t> queue_;  // starts beyond the cutoff, G(x) - x/BW increasing
};

}  // namespace penstock::planner
