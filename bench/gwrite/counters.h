// The case scattered-counters of the gwrite benchmark.
#pragma once

#include "bench/harness/report.h"

namespace penstock::bench {

// Adds one to a counter of 8 bytes in each 32 KiB of a file that the OS has cached, and makes it
// last: a kernel and the file system's sync, against threads with pread, pwrite and fsync.
void measure_counters(Report& report, const Arguments& arguments);

}  // namespace penstock::bench
