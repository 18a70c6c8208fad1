// What plans have to say about bytes that are not in the OS page cache and could come through it.
//
// Inside the room. Pure; any thread.
#pragma once

#include "planner/planner.h"

namespace penstock::planner {

// The model by which ways are searched; what they cost is told by `model` itself.
[[nodiscard]] CostModel searched_model(const CostModel& model, Buffered buffered);

}  // namespace penstock::planner
