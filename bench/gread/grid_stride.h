// The cases of bench gread whose blocks share a file piece by piece, and those of default pages.
#pragma once

#include "bench/harness/report.h"
#include "bench/harness/test_file.h"
#include "penstock/device.h"

namespace penstock::bench {

// On a device whose memory the host can address.
void measure_grid_stride(Report& report, const Arguments& arguments);
// On another, of a file that the OS has cached.
void measure_gpu_grid_stride(Report& report, const Arguments& arguments, const Device& device,
                             const TestFile& file);

}  // namespace penstock::bench
