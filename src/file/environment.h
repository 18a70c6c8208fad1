// Reads the environment variables that set defaults for options. Implements
// fill_from_environment() of penstock/options.h.
#pragma once

#include <string_view>

namespace penstock::file {

// Returns the value of a variable; empty where it is not set. No other function of the room reads
// one. The view is valid until the environment changes.
[[nodiscard]] std::string_view environment(const char* variable);

// Returns whether a CUDA device may make a second context. PENSTOCK_SECOND_CONTEXT=0 forbids it,
// for programs whose options cannot be changed.
[[nodiscard]] bool environment_allows_second_context();

}  // namespace penstock::file
