// What random streams lose by being watched.
#pragma once

#include "bench/harness/report.h"

namespace penstock::bench {

void measure_random(Report& report, const Arguments& arguments);

}  // namespace penstock::bench
