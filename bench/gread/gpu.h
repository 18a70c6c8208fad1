// The cases of bench gread for a GPU.
#pragma once

#include "bench/harness/report.h"
#include "bench/harness/test_file.h"
#include "penstock/device.h"

namespace penstock::bench {

// All of them.
void measure_gpu(Report& report, const Arguments& arguments, const Device& device);
// Those of them with readahead, or at random.
void measure_gpu_readahead(Report& report, const Arguments& arguments, const Device& device,
                           const TestFile& file);

}  // namespace penstock::bench
