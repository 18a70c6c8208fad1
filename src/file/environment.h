// Reads the environment variables that set defaults for options.
#pragma once

#include <string_view>

#include "penstock/options.h"
#include "penstock/status.h"

namespace penstock::file {

// Returns the value of a variable; empty where it is not set. No other function of the room reads
// one. The view is valid until the environment changes.
[[nodiscard]] std::string_view environment(const char* variable);

// Completes the route and strictness of `options`' reads and writes from PENSTOCK_ROUTE and
// PENSTOCK_STRICT, and `explain` from PENSTOCK_EXPLAIN, if `options` allows it. A variable that is
// not set changes nothing. The result is final: later changes of the environment do not affect
// `options`. EINVAL: a variable has an invalid value; the origin of the status is the variable's
// name.
Status fill_from_environment(FileOptions* options);

// Returns whether a CUDA device may make a second context. PENSTOCK_SECOND_CONTEXT=0 forbids it,
// for programs whose options cannot be changed.
[[nodiscard]] bool environment_allows_second_context();

}  // namespace penstock::file
