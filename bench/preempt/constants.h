// The constants of the model, measured by micro-benchmarks in a process of their own.
//
// One thread.
#pragma once

#include "bench/harness/report.h"
#include "bench/preempt/model.h"

namespace penstock::bench {

// Measures the constants in a child process, prints them, and adds them to the report's
// environment. Without preemptible kernels only those of reads and computation.
[[nodiscard]] Constants measure_constants(Report& report, const Arguments& arguments);

// Returns whether this process is that child; if so, it has done its work.
[[nodiscard]] bool run_constants();

}  // namespace penstock::bench
