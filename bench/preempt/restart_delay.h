// Figures 14 and 15 of seed 001: how long ready blocks wait until they run.
#pragma once

#include <string>

#include "bench/preempt/rounds.h"

namespace penstock::bench {

// Seconds from ready to running, the mean of one run; 0: no block left.
inline double restart_delay(const MixRun& run) {
    if (run.preemption.left == 0) return 0;
    return static_cast<double>(run.preemption.resume_ns) * 1e-9 /
           static_cast<double>(run.preemption.left);
}

// Adds the row of this library's policy against the seed's, in a mix that ran in both. Rounds in
// which no block left in one of them are left out.
inline void add_restart_delay(Report& report, const std::string& mix, const MixRounds& rounds) {
    const std::vector<MixRun>& ours = rounds.of(WaitMode::kAdaptive);
    const std::vector<MixRun>& seed = rounds.of(WaitMode::kSeedPolicy);
    Row row = rounds.row("restart-delay-" + mix, name(WaitMode::kSeedPolicy), WaitMode::kAdaptive,
                         &MixRun::io_seconds, figures(seed, &MixRun::io_seconds));
    row.pairs.clear();
    for (size_t i = 0; i < ours.size(); ++i) {
        const double one = restart_delay(ours[i]), other = restart_delay(seed[i]);
        if (one > 0 && other > 0) row.pairs.emplace_back(one, other);
    }
    if (!row.pairs.empty()) report.add(std::move(row));
}

}  // namespace penstock::bench
