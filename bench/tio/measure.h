// Runs the cells of the tio benchmark: each mechanism in an order drawn for each round, each from
// the same cache state.
//
// One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/prng.h"
#include "bench/harness/cache_state.h"
#include "bench/harness/crew.h"
#include "bench/harness/rounds.h"
#include "bench/harness/test_file.h"
#include "bench/tio/cells.h"
#include "bench/tio/mechanisms.h"
#include "penstock/device.h"

namespace penstock::bench {

struct TioResult {
    TioCell cell;
    std::vector<const char*> mechanisms;  // `auto` last
    std::vector<double> cpu_seconds;      // of all runs, for each of them
    std::vector<unsigned> runs;           // so many, for each of them
    Choice choice;                        // of the first half
    Pairs judged;                         // against the best, of the other half
    uint64_t bytes = 0;                   // of one run
    bool verified = true;
    std::string routes;  // of `auto`, in words
};

class TioMeasurement {
public:
    explicit TioMeasurement(const Device& device);
    ~TioMeasurement();
    TioMeasurement(const TioMeasurement&) = delete;
    TioMeasurement& operator=(const TioMeasurement&) = delete;

    // A run of each to warm up, `pairs` rounds of all, and as many of the best one and `auto`.
    TioResult measure(const TioCell& cell, unsigned pairs);

private:
    struct ThreadFile {
        explicit ThreadFile(uint64_t size) : file(size), state(file) {}
        TestFile file;
        CacheState state;
        PageMap wanted;
    };
    struct Run;  // of one cell

    void lay(unsigned cached_percent);
    double run_side(Run& run, size_t side);
    void read_part(const Run& run, Mechanism& reads, unsigned thread, unsigned passes,
                   size_t count);
    bool check(const Run& run, size_t count);
    [[nodiscard]] unsigned char* part(const TioCell& cell, unsigned thread) const;

    const Device device_;
    std::vector<std::unique_ptr<ThreadFile>> files_;
    std::vector<NamedMechanism> mechanisms_;
    Crew crew_;
    unsigned char* destination_;          // in device memory
    unsigned char* host_copy_ = nullptr;  // of it, where the host cannot address it
    Stream stream_;
    unsigned laid_percent_ = 101;  // no cell's
    base::Prng prng_{3};           // of the order of runs
};

}  // namespace penstock::bench
