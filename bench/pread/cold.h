// The cold rows of the pread benchmark: against fio. One thread.
#pragma once

#include "bench/harness/report.h"

namespace penstock::bench {

void measure_cold(Report& report, const Arguments& arguments);

}  // namespace penstock::bench
