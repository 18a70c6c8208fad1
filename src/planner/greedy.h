// SPIN's greedy rule (Bergman et al., USENIX ATC 2017, section 4.3.1), applied to whole runs from
// the left.
//
// A cached run between two direct runs is swallowed in two cases: if the run before it and itself
// fit into the cutoff, or if one transfer of all three takes less time than two transfers and a
// copy. This version has limits that the paper does not have: pages that are never direct separate
// the runs, and a transfer has a largest size.
//
// Used only in this room. Pure; one thread.
#pragma once

#include "planner/cells.h"

namespace penstock::planner {

void greedy_way(const Cells& cells, const CostModel& model, Way* way);

}  // namespace penstock::planner
