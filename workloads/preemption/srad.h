// SRAD as tests and benchmarks run it: seeded images, and its check. One thread an object.
#pragma once

#include <memory>

#include "preemption/srad_kernels.h"
#include "preemption/workload.h"

namespace penstock::workloads {

struct SradOptions {
    uint64_t seed = 1;
    bool reads_file = false;                // the image comes from a file inside the first kernel
    int tile_columns = 16, tile_rows = 16;  // the image has kSradTile times as many cells
    unsigned blocks = 64;  // of a kernel, a divisor of the number of tiles: the length of a block
    unsigned iterations = 2;
    float lambda = 0.5F;
};

// A run has four kernels an iteration; one of them has one block. Part::kCompute takes the image
// from device memory; Part::kReads fails with ENOTSUP. Errors: EINVAL for other options than these;
// ENOMEM; errors of the file.
[[nodiscard]] Result<std::unique_ptr<Workload>> make_srad(const Site& site,
                                                          const SradOptions& options);

// The image after all iterations. `image` is an array of tiles, as in srad_kernels.h.
[[nodiscard]] std::vector<float> srad_reference(std::vector<float> image,
                                                const SradOptions& options);

}  // namespace penstock::workloads
