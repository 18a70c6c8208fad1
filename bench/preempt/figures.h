// The rows of the preempt benchmark that come from mixes of I/O kernels and compute kernels.
//
// One thread.
#pragma once

#include "bench/harness/report.h"
#include "bench/harness/watch.h"

namespace penstock::bench {

// Figures 6 and 12 to 14 of seed 001: one and eight reads per block; each mode against the bound
// max(I, C) and against spinning; the time in the system of each kind of kernel.
void measure_mixed(Report& report, const Arguments& arguments, const Watch& watch);

// Figures 9 and 15: the I/O kernels alone. Figures 10 and 11: storage in memory.
void measure_io_bound(Report& report, const Arguments& arguments, const Watch& watch);

// Figures 4 and 5: leaving and coming back, for each state of HotSpot.
void measure_checkpoints(Report& report, const Arguments& arguments);

// Figures 14 and 15 without files: from ready to running, for 1 to 512 blocks.
void measure_restarts(Report& report, const Arguments& arguments);

// What a point costs that is never taken, in instructions that callgrind counts. Each count is that
// of a process of its own, which runs run_counted() and is this program.
void measure_instructions(Report& report, const Arguments& arguments);
// Returns whether this process is one of these; if so, it has done its work.
[[nodiscard]] bool run_counted();

}  // namespace penstock::bench
