// PathFinder as tests and benchmarks run it: seeded walls, and its check. One thread an object.
#pragma once

#include <memory>

#include "preemption/pathfinder_kernels.h"
#include "preemption/workload.h"

namespace penstock::workloads {

struct PathOptions {
    uint64_t seed = 1;
    bool reads_file = false;  // the wall comes from a file inside the kernel
    int columns = 4096, rows = 101;
    int rows_per_launch = 20;  // at most kPathRowsMax: the length of a block
};

// A run has a kernel for each rows_per_launch rows. Part::kCompute takes the wall from device
// memory; Part::kReads fails with ENOTSUP. Errors: EINVAL for other options than these; ENOMEM;
// errors of the file.
[[nodiscard]] Result<std::unique_ptr<Workload>> make_path(const Site& site,
                                                          const PathOptions& options);

// The costs of the cheapest paths to the columns of the last row.
[[nodiscard]] std::vector<int> path_reference(const std::vector<int>& wall, int columns);

}  // namespace penstock::workloads
