// Blocks that read and compute in a chosen proportion, as tests and benchmarks run them: seeded
// bytes, and their check. One thread an object.
#pragma once

#include <memory>
#include <vector>

#include "preemption/pieces_kernels.h"
#include "preemption/workload.h"

namespace penstock::workloads {

struct PiecesOptions {
    uint64_t seed = 1;
    bool reads_file = true;  // false: all pieces lie in device memory, and Part::kReads fails
    unsigned blocks = 16, pieces = 1;
    unsigned piece_size = 16 << 10;  // bytes, a multiple of 8 * kPiecesThreads
    unsigned rounds = 100;           // sets C
    bool records_times = false;
};

class Pieces : public Workload {
public:
    // Waits for the stream. Returns the times of each piece of the last run, in the order of
    // blocks. Empty if the options do not ask for them.
    [[nodiscard]] virtual Result<std::vector<PieceTimes>> times(Stream& stream) const = 0;
};

// The run has one kernel. Errors: EINVAL for other options than these; ENOMEM; errors of the file.
[[nodiscard]] Result<std::unique_ptr<Pieces>> make_pieces(const Site& site,
                                                          const PiecesOptions& options);

}  // namespace penstock::workloads
