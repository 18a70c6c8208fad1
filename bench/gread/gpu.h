// The cases of bench gread for a GPU: resident pages against a copy within the device, misses on a
// hot file against copies from pinned memory.
#pragma once

#include "bench/harness/report.h"
#include "penstock/device.h"

namespace penstock::bench {

void measure_gpu(Report& report, const Arguments& arguments, const Device& device);

}  // namespace penstock::bench
