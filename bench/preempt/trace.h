// Figures 7 and 8 of seed 001 as a trace that chrome://tracing and Perfetto open.
//
// One thread.
#pragma once

#include "bench/harness/report.h"
#include "bench/preempt/model.h"

namespace penstock::bench {

// Runs five I/O kernels and two compute kernels, once with blocks that spin and once with this
// library's policy, and writes when each block ran and where to arguments.trace. Does nothing if
// that is empty. In the trace a process is a run, and a thread is a place of the device.
void write_trace(Report& report, const Arguments& arguments, const Constants& constants);

}  // namespace penstock::bench
