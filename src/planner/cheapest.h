// The cheapest way through a row of cells, where each is copied or belongs to a direct transfer:
// exact, in linear time.
//
// With G(p) the least cost of the cells before p, a direct transfer that ends at p costs
// min over x of G(x) + T(p - x). T is flat up to the cutoff and linear beyond, and G never
// decreases. So among starts within the cutoff the first is best; among those beyond it the least
// of G(x) - x/BW counts, a minimum over a window that slides.
//
// Inside the room. Pure; one thread.
#pragma once

#include <cstdint>
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
    // Fills `way` and returns the weighted cost, which counts no direct_start_ns. `model` is
    // sane().
    double find(const Cells& cells, const CostModel& model, const Weights& weights, Way* way);
    // Takes the memory for so many cells; find() does not.
    void reserve(size_t cells);

private:
    class Window;
    void trace_back(size_t count, bool copied, Way* way) const;

    // Of each end.
    std::vector<double> costs_;    // G
    std::vector<double> keys_;     // G(x) - x/BW
    std::vector<uint32_t> from_;   // how it was reached
    std::vector<uint32_t> least_;  // of the window
};

}  // namespace penstock::planner
