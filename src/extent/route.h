// Routes and reasons (penstock/route.h) under the names that the rooms of src/ use.
#pragma once

#include "penstock/route.h"

namespace penstock::extent {

using penstock::Route;
using penstock::RouteReason;

}  // namespace penstock::extent
