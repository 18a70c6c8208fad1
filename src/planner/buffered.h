// Decides how plans treat bytes that are not in the OS page cache and could come through it.
//
// Used only in this room. Pure; any thread.
#pragma once

#include "planner/planner.h"

namespace penstock::planner {

// Returns the model for the search of ways. The costs of the way that is found come from `model`
// itself.
//
// The model's error counts against direct transfers: copies of cached pages are cheaper by it, and
// all that storage does is dearer. A way then bypasses cached pages only if that gains time even
// with the error. The choice between the two routes of missing pages stays as it is.
[[nodiscard]] CostModel searched_model(const CostModel& model, Buffered buffered);

}  // namespace penstock::planner
