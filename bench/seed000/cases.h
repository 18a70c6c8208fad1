// The experiments of seed 000, by what they need.
#pragma once

#include "bench/harness/report.h"
#include "bench/harness/walk_rig.h"

namespace penstock::bench {

// Host threads that serve, as in the paper.
inline constexpr unsigned kHostThreads = 4;
// Blocks that are resident at once there.
inline constexpr unsigned kResident = 60;

// "cpu" with as many permits as blocks were resident in the paper; other devices as they are.
std::string device_of(const Arguments& arguments);
// "4k", "2m".
std::string size_name(uint64_t bytes);

// Figures 2, 9 and 10: reads through the page cache.
void measure_pages(Report& report, const Arguments& arguments, const WalkKernels& kernels);
// Figures 3 to 6: requests with neither page cache nor transfer.
void measure_order(Report& report, const Arguments& arguments);
// Figure 7: a file in memory, and the link.
void measure_link(Report& report, const Arguments& arguments);

}  // namespace penstock::bench
