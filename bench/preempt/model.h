// The model of seed 001, section 3, with its overhead opened up into what causes it.
//
// The seed: I + C without preemption, max(I, C) + alpha with it, on one place. Here a device has
// several places, and alpha has terms: switches, reads, the watcher, the other code of kernels that
// may leave, and the way back of the last block. The constants are measured elsewhere
// (constants.h). Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "bench/preempt/mode.h"

namespace penstock::bench {

// What the micro-benchmarks measure, in seconds. CPU: time of a core, whichever thread spends it.
struct Constants {
    double switching = 0;                 // CPU, for a block to leave once and to come back
    double read = 0, byte = 0;            // CPU, in the block's place: for a read, for each byte
    double host_read = 0, host_byte = 0;  // CPU, of the host's threads for the same
    double watching = 0;                  // share of a core, while blocks are outside
    double way_back = 0;  // elapsed, beyond the latency of a read whose block leaves
    double launch = 0;    // elapsed, of a kernel that does nothing
    double round = 0;     // CPU, of one round of the computation of workloads::Pieces
};

// One measured point.
struct Work {
    double io = 0;          // I: seconds of the reads with the computation left out
    double compute = 0;     // C: seconds of the computation without the reads
    double io_compute = 0;  // the part of C that kernels which read compute
    double form = 0;        // what C takes more in the kernels that `penstock preempt` wrote
    uint64_t reads = 0;     // of all blocks
    uint64_t reads_of_block = 1;
    uint64_t bytes = 0;
    unsigned places = 1, cores = 1;
    double dispatch_delay = 0;  // injected into each launch of workers
};

// A predicted time, and alpha by term.
struct Prediction {
    double seconds = 0;
    double switches = 0, reads = 0, watching = 0, form = 0;  // they delay the computation
    double way_back = 0;                                     // it delays the end of the reads
    bool io_bound = false;                                   // the reads determine the time

    // Returns "predicted 80.1 ms = max(I, C) + 3.2 ms: switches ... ms, ...".
    [[nodiscard]] std::string describe(const Work& work) const;
};

// Predicts the time of a run in `mode`.
[[nodiscard]] Prediction predict(WaitMode mode, const Constants& constants, const Work& work);

// The formula of the seed for one place, in units of I: the time without preemption over the time
// with it. `ratio` is C / I; `beta` is I / alpha, infinite for no overhead.
[[nodiscard]] double seed_gain(double ratio, double beta);

}  // namespace penstock::bench
