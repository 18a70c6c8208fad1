// The rows of the preempt benchmark that come from mixes of I/O kernels and compute kernels.
//
// One thread.
#pragma once

#include "bench/harness/report.h"
#include "bench/harness/watch.h"
#include "bench/preempt/model.h"

namespace penstock::bench {

// Figures 12 to 14 of seed 001, and the middle of figure 6: one and eight reads per block; each
// mode against the bound max(I, C), the model and spinning; the time in the system of each kind of
// kernel.
void measure_mixed(Report& report, const Arguments& arguments, const Constants& constants);

// The rest of figure 6: fewer and more I/O kernels.
void measure_sweep(Report& report, const Arguments& arguments, const Constants& constants,
                   const Watch& watch);

// Figures 9 and 15: the I/O kernels alone. Figures 10 and 11: storage in memory.
void measure_io_bound(Report& report, const Arguments& arguments, const Constants& constants,
                      const Watch& watch);

// Figures 1 and 2: the seed's formula; measurements on one place; eight points against the model.
// Then launches of workers that take longer (an emulation), which gives other overheads.
void measure_model(Report& report, const Arguments& arguments, const Constants& constants,
                   const Watch& watch);

// Figures 4 and 5: leaving and coming back, for each state of HotSpot.
void measure_checkpoints(Report& report, const Arguments& arguments, const Watch& watch);

// Figures 14 and 15 without files: from ready to running, for 1 to 512 blocks.
void measure_restarts(Report& report, const Arguments& arguments, const Watch& watch);

// On a GPU: a kernel that reads ahead of one that computes, against the longer of the two.
void measure_gpu_mix(Report& report, const Arguments& arguments);

// What a point costs that is never taken, in instructions that callgrind counts. Each count is that
// of a process of its own, which runs run_counted() and is this program.
void measure_instructions(Report& report, const Arguments& arguments);
// Returns whether this process is one of these; if so, it has done its work.
[[nodiscard]] bool run_counted();

}  // namespace penstock::bench
