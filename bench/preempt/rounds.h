// Runs of one mix in several modes, taken in rounds: each round runs every side once, in an order
// drawn at random.
//
// One thread.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/prng.h"
#include "bench/harness/report.h"
#include "bench/harness/rounds.h"
#include "bench/preempt/cases.h"
#include "bench/preempt/model.h"

namespace penstock::bench {

// Two devices with the same mix on each: one with a place for each core, and one with more places.
class MixRigs {
public:
    MixRigs(const Arguments& arguments, const Constants& constants, workloads::ProductForm form,
            const Disk& disk);

    [[nodiscard]] MixRig& of(WaitMode mode) {
        return mode == WaitMode::kMorePlaces ? wide_ : plain_;
    }
    [[nodiscard]] const std::string& description() const { return description_; }
    [[nodiscard]] const Constants& constants() const { return constants_; }
    [[nodiscard]] uint64_t reads_of_block() const { return reads_of_block_; }

private:
    const Constants constants_;
    const uint64_t reads_of_block_;
    MixRig plain_, wide_;
    std::string description_;
};

// The runs of all rounds of one mix.
class MixRounds {
public:
    // Modes that this build does not have are left out.
    MixRounds(MixRigs* rigs, MixRig::Mix mix, const std::vector<WaitMode>& modes);

    // Takes a round that is dropped, then `count` rounds. `name` tells the user which.
    void take(const std::string& name, unsigned count, base::Prng* prng);

    [[nodiscard]] bool has(WaitMode mode) const { return side_of(mode) < sides_.size(); }
    [[nodiscard]] const std::vector<MixRun>& of(WaitMode mode) const {
        return sides_[side_of(mode)].runs;
    }
    // The time that nothing could be faster than, in each round: the longer one of the reads with
    // the computation left out (I), and the computation without the reads (C).
    [[nodiscard]] std::vector<double> bound() const;
    [[nodiscard]] std::vector<double> io() const;       // I
    [[nodiscard]] std::vector<double> compute() const;  // C
    // What the model predicts for a mode, once for each round.
    [[nodiscard]] std::vector<double> predictions(WaitMode mode) const;
    [[nodiscard]] const MixRig::Mix& mix() const { return mix_; }

    // Makes a row of a mode: `figure` of each of its runs, against `baseline`.
    [[nodiscard]] Row row(std::string name, std::string against, WaitMode mode,
                          double MixRun::*figure, const std::vector<double>& baseline) const;

private:
    struct Side {
        WaitMode mode;
        workloads::Part part;
        MixRig::Mix mix;
        std::vector<MixRun> runs;
    };
    [[nodiscard]] size_t side_of(WaitMode mode) const;
    [[nodiscard]] std::vector<double> seconds(size_t side) const;
    [[nodiscard]] Work work() const;  // from the medians of the sides

    MixRigs* rigs_;
    const MixRig::Mix mix_;
    std::vector<Side> sides_;  // reads alone, all computation, that of I/O kernels, that of second
                               // forms; modes
};

// Rounds of what only a figure needs, not a judgement.
[[nodiscard]] inline unsigned few_rounds(const Arguments& arguments) {
    return arguments.full ? arguments.pairs : std::min(arguments.pairs / 5 + 1, 4u);
}
// The same for what a judgement needs, but that no bar does.
[[nodiscard]] inline unsigned some_rounds(const Arguments& arguments) {
    return arguments.full ? arguments.pairs : std::min(arguments.pairs, 15u);
}

// Prints what is being measured to standard error.
void tell_progress(const std::string& name, unsigned rounds, size_t sides);

// `figure` of each run.
[[nodiscard]] std::vector<double> figures(const std::vector<MixRun>& runs, double MixRun::*figure);

}  // namespace penstock::bench
