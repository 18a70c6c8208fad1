// Decides how plans treat bytes that are not in the OS page cache and could come through it.
//
// Used only in this room. Pure; any thread.
#pragma once

#include "planner/planner.h"

namespace penstock::planner {

// Returns the model for the search of ways. The costs of the way that is found come from `model`
// itself.
[[nodiscard]] CostModel searched_model(const CostModel& model, Buffered buffered);

}  // namespace penstock::planner
