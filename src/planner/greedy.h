// SPIN's rule (Bergman et al., USENIX ATC 2017, section 4.3.1): over whole runs, from the left.
//
// Between two runs that are direct, a run that is in the page cache is swallowed if what is in
// front of it and itself fit into the cutoff, or if one transfer of all three takes less than two
// and a copy. Here with limits that the paper does not have: pages that are never direct part the
// runs, and a transfer has a largest size.
//
// Inside the room. Pure; one thread.
#pragma once

#include "planner/cells.h"

namespace penstock::planner {

void greedy_way(const Cells& cells, const CostModel& model, Way* way);

}  // namespace penstock::planner
