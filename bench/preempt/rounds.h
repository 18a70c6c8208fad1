// Runs of one mix in several modes, taken in rounds: each round runs every side once, in an order
// drawn at random.
//
// One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/prng.h"
#include "bench/harness/report.h"
#include "bench/harness/rounds.h"
#include "bench/preempt/cases.h"

namespace penstock::bench {

// Two devices with the same mix on each: one with a place for each core, and one with more places.
class MixRigs {
public:
    MixRigs(const Arguments& arguments, workloads::ProductForm form, const Disk& disk);

    [[nodiscard]] MixRig& of(WaitMode mode) {
        return mode == WaitMode::kMorePlaces ? wide_ : plain_;
    }
    [[nodiscard]] const std::string& description() const { return description_; }

private:
    MixRig plain_, wide_;
    std::string description_;
};

// The runs of all rounds of one mix.
class MixRounds {
public:
    // Modes that this build does not have are left out.
    MixRounds(MixRigs* rigs, MixRig::Mix mix, const std::vector<WaitMode>& modes);

    // Takes a round that is dropped, then `count` rounds.
    void take(unsigned count, base::Prng* prng);

    [[nodiscard]] bool has(WaitMode mode) const { return side_of(mode) < sides_.size(); }
    [[nodiscard]] const std::vector<MixRun>& of(WaitMode mode) const {
        return sides_[side_of(mode)].runs;
    }
    // The time that nothing could be faster than, in each round: the longer one of the reads with
    // the computation left out (I), and the computation without the reads (C).
    [[nodiscard]] std::vector<double> bound() const;
    [[nodiscard]] std::vector<double> io() const;       // I
    [[nodiscard]] std::vector<double> compute() const;  // C
    [[nodiscard]] const MixRig::Mix& mix() const { return mix_; }

    // Makes a row of a mode: `figure` of each of its runs, against `baseline`.
    [[nodiscard]] Row row(std::string name, std::string against, WaitMode mode,
                          double MixRun::*figure, const std::vector<double>& baseline) const;

private:
    struct Side {
        WaitMode mode;
        workloads::Part part;
        std::vector<MixRun> runs;
    };
    [[nodiscard]] size_t side_of(WaitMode mode) const;
    [[nodiscard]] std::vector<double> seconds(size_t side) const;

    MixRigs* rigs_;
    const MixRig::Mix mix_;
    std::vector<Side> sides_;  // the reads alone, the computation alone, then the modes
};

// `figure` of each run.
[[nodiscard]] std::vector<double> figures(const std::vector<MixRun>& runs, double MixRun::*figure);

}  // namespace penstock::bench
