// Finds the cheapest way through a row of cells, where each cell is copied or belongs to a direct
// transfer. The result is exact and takes linear time.
//
// Let G(p) be the least cost of the cells before p. A direct transfer that ends at p then costs the
// minimum over x of G(x) + T(p - x). T is flat up to the cutoff and linear beyond, and G never
// decreases. So among starts within the cutoff the first is best. Among starts beyond it, the least
// G(x) - x/BW is best; this is a sliding-window minimum.
//
// Used only in this room. Pure; one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/cells.h"

namespace penstock::planner {

// The weight of a nanosecond of each member of Costs.
struct Weights {
    double copy = 1;
    double direct = 1;
    double shared = 0;
};

class CheapestWay {
public:
    // Fills `way` and returns its weighted cost without direct_start_ns. `model` must be sane().
    double find(const Cells& cells, const CostModel& model, const Weights& weights, Way* way);
    // Takes the memory for `cells` cells. find() takes none.
    void reserve(size_t cells);

private:
    class Window;
    void trace_back(size_t count, bool copied, Way* way) const;

    // One element for each cell's end.
    std::vector<double> costs_;    // G
    std::vector<double> keys_;     // G(x) - x/BW
    std::vector<uint32_t> from_;   // how the end was reached
    std::vector<uint32_t> least_;  // the start with the least key in the window
};

}  // namespace penstock::planner
