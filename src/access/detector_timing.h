// Computes the mean and deviation of the gaps between accesses, after Welford, and tolerates clock
// errors. A jump backwards counts as no time, and a jump of an hour or more is ignored. Of the
// rest, the longest gap and those far above the others count only up to a limit. Pure; one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "access/program.h"

namespace penstock::access {

class GapMeter {
public:
    static constexpr double kJumpNs = 3600e9;  // after such a gap a prefetch is in time anyway

    void add_gap(double ns) {
        if (ns >= kJumpNs) return;
        ++seen_;
        // The longest gap is added only after a longer one has come: it may be a jump of less than
        // an hour.
        if (seen_ > 1) add(std::min(ns, longest_));
        longest_ = std::max(ns, longest_);
    }
    // Adds the time of an access.
    void add_time(uint64_t ns) {
        if (begun_) add_gap(ns > last_ ? static_cast<double>(ns - last_) : 0.0);
        begun_ = true;
        last_ = ns;
    }
    [[nodiscard]] Timing timing() const {
        if (seen_ == 0) return {};
        GapMeter all = *this;
        all.add(longest_);
        return {all.mean_, std::sqrt(all.squares_ / static_cast<double>(all.count_)), seen_};
    }

private:
    // Limits a gap to this many times the mean plus four deviations. If one gap in a thousand is
    // long, the deviation grows, so that such gaps soon count in full.
    static constexpr double kBelieved = 8;
    static constexpr double kBelievedNs = 1000;  // always allowed, or none would be after zeros

    void add(double ns) {
        if (count_ > 0 && ns > std::max(kBelieved * mean_, kBelievedNs)) {
            const double deviation = std::sqrt(squares_ / static_cast<double>(count_));
            ns = std::min(ns, std::max(kBelieved * (mean_ + 4 * deviation), kBelievedNs));
        }
        ++count_;
        const double before = ns - mean_;
        mean_ += before / static_cast<double>(count_);
        squares_ += before * (ns - mean_);
    }

    double mean_ = 0, squares_ = 0, longest_ = 0;
    uint64_t count_ = 0, seen_ = 0, last_ = 0;
    bool begun_ = false;
};

}  // namespace penstock::access
