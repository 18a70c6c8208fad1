// One point of the model, I, C and the reads of a block, measured in rounds: the reads alone, the
// computation alone, and whole runs.
//
// One thread.
#pragma once

#include <string>
#include <vector>

#include "base/prng.h"
#include "bench/harness/report.h"
#include "bench/preempt/model.h"
#include "bench/preempt/rig.h"

namespace penstock::bench {

struct PointShape {
    unsigned places;  // 0: one for each core
    unsigned blocks, reads_of_block, read_size;
    double ratio;  // C / I, about
};

// A whole run at a point.
struct PointRun {
    WaitMode mode;
    double dispatch_delay_us = 0;
};

class Point {
public:
    Point(const std::string& device, const Constants& constants, const PointShape& shape);

    // Takes a round that is dropped, then `rounds` rounds of all `runs`. `name` tells the user
    // which.
    void take(const std::string& name, unsigned rounds, base::Prng* prng,
              const std::vector<PointRun>& runs);

    [[nodiscard]] std::vector<double> seconds(size_t run) const;
    [[nodiscard]] std::vector<double> predictions(size_t run) const;  // equal in all rounds
    // Makes the row that tells where the point lies: C against I.
    [[nodiscard]] Row place(std::string name) const;
    // Makes a row of runs[run] against `baseline`.
    [[nodiscard]] Row row(std::string name, std::string against, size_t run,
                          const std::vector<double>& baseline) const;

private:
    struct Side {
        PointRun run;
        workloads::Part part;
        std::vector<MixRun> runs;
    };
    [[nodiscard]] const Side& side_of(size_t run) const { return sides_[kStubs + run]; }
    [[nodiscard]] Work work(size_t run) const;  // from the medians of the sides
    [[nodiscard]] Prediction prediction(size_t run) const;
    [[nodiscard]] bool right() const;  // every result of every run

    static constexpr size_t kStubs = 4;  // sides without one part of the work

    const Constants constants_;
    const PointShape shape_;
    MixRig rig_;
    std::vector<Side> sides_;
};

}  // namespace penstock::bench
