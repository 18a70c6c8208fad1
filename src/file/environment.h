// What the environment asks for of reads and writes that name nothing themselves.
#pragma once

#include "penstock/options.h"
#include "penstock/status.h"

namespace penstock::file {

// Sets the route and strictness of `options`' reads and writes by PENSTOCK_ROUTE and
// PENSTOCK_STRICT, as it asks for, and no more: what it is then it stays. EINVAL: a variable, which
// is where it arose, has a value that says nothing.
Status fill_from_environment(FileOptions* options);

// Returns whether a CUDA device may make a second context: not with PENSTOCK_SECOND_CONTEXT=0, for
// programs whose options cannot be changed.
[[nodiscard]] bool environment_allows_second_context();

}  // namespace penstock::file
