// Whoever is told when reads of Python begin and end: tracing, PENSTOCK_EXPLAIN.
#pragma once

#include <nanobind/nanobind.h>

namespace penstock::python {

// An object with begun(operation, name, size, offset) -> token and ended(token, report, error), and
// for what kernels read served(log), where wants_served; null: nobody is told, and nothing is spent
// on it. Wants the interpreter held.
nanobind::handle observer();

}  // namespace penstock::python
