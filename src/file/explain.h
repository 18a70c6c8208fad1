// Tells on standard error what became of a read or write: PENSTOCK_EXPLAIN.
#pragma once

#include <string>

#include "penstock/report.h"

namespace penstock::file {

// Prints one line for an operation ("read", "pwritev") that has ended. Any thread.
void print_explanation(const std::string& path, const char* operation, const Report& report);

}  // namespace penstock::file
