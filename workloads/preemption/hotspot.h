// HotSpot as tests and benchmarks run it: seeded chips, and its check. One thread an object.
#pragma once

#include <memory>

#include "preemption/hotspot_kernels.h"
#include "preemption/workload.h"

namespace penstock::workloads {

struct HeatOptions {
    uint64_t seed = 1;
    HeatPoint point = HeatPoint::kNone;
    unsigned cells = 1;  // of a GPU thread: 1, 2, 4 or 8
    int columns = 256, rows = 256;
    int steps = 8, steps_per_launch = 2;  // the latter at most kHeatStepsMax: the length of a block
};

// A run has a kernel for each steps_per_launch steps. There are no reads: Part::kCompute is all,
// and Part::kReads fails with ENOTSUP. Errors: EINVAL for other options than these; ENOMEM.
[[nodiscard]] Result<std::unique_ptr<Workload>> make_heat(const Site& site,
                                                          const HeatOptions& options);

// The temperatures after `steps` steps of the whole chip, row-major.
[[nodiscard]] std::vector<float> heat_reference(std::vector<float> temperature,
                                                const std::vector<float>& power, int columns,
                                                int steps, const HeatRates& rates);

}  // namespace penstock::workloads
