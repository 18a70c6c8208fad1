// Runs the cells of one disk: `auto`, which is the library at its defaults, and single modes, in an
// order drawn for each round, each from the same cache state.
//
// One thread.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "bench/harness/cache_state.h"
#include "bench/harness/huge_buffer.h"
#include "bench/harness/plain_reads.h"
#include "bench/harness/report.h"
#include "bench/harness/rounds.h"
#include "bench/harness/test_file.h"
#include "bench/route/cells.h"
#include "penstock/file.h"

namespace penstock::bench {

struct CellResult {
    Cell cell;
    std::vector<const char*> modes;
    std::vector<Pairs> first_half;  // for each mode; the best one is chosen here
    size_t best = 0;                // which mode
    Pairs judged;                   // against the best, of the other half
    Pairs against_cached;           // of hot cells: all
    uint64_t bytes = 0;             // of one run
    bool verified = true;
    double cpu_seconds = 0;
    std::string routes;  // of auto, in words
};

class RouteMeasurement {
public:
    // Writes a file into `folder` (empty: the temporary folder). `threads` that cached reads run
    // in. All modes in all cells; else direct reads in the way that suits the size: by io_uring
    // from 1 MiB on, by pread up to 1 MiB.
    RouteMeasurement(const std::string& folder, unsigned threads, bool all_modes);

    // A warm-up round, `pairs` rounds of all modes, and as many of the best one.
    CellResult measure(const Cell& cell, unsigned pairs);

    [[nodiscard]] double huge_share() const { return destination_.huge_share(); }

private:
    struct Mode {
        const char* name;
        std::unique_ptr<PlainReads> reads;
        uint64_t request_min, request_max;
    };
    struct Run;  // of one cell

    double run_auto(Run& run);
    double run_mode(Run& run, PlainReads& reads);
    void watch_routes(Run& run);
    // Runs a mode by its index, or auto, which has the index after them.
    double run_side(Run& run, size_t side);
    void judge(Run& run, unsigned pairs);
    void lay(const Pattern& pattern);
    template <class Read>
    double timed_run(Run& run, unsigned passes, Read read);

    TestFile file_;
    CacheState state_;
    File library_;
    std::vector<Mode> modes_;
    HugeBuffer destination_;
    Pattern laid_;
    base::Prng prng_{4};  // of the order of runs
    PageMap wanted_;
};

}  // namespace penstock::bench
