// Mean and deviation of the gaps between accesses, after Welford. Pure; one thread.
#pragma once

#include <cmath>
#include <cstdint>

#include "access/program.h"

namespace penstock::access {

class GapMeter {
public:
    void add_gap(double ns) {
        ++count_;
        const double before = ns - mean_;
        mean_ += before / static_cast<double>(count_);
        squares_ += before * (ns - mean_);
    }
    // The time of an access; a jump backwards is no time.
    void add_time(uint64_t ns) {
        if (seen_) add_gap(ns > last_ ? static_cast<double>(ns - last_) : 0.0);
        seen_ = true;
        last_ = ns;
    }
    [[nodiscard]] Timing timing() const {
        if (count_ == 0) return {};
        return {mean_, std::sqrt(squares_ / static_cast<double>(count_)), count_};
    }

private:
    double mean_ = 0, squares_ = 0;
    uint64_t count_ = 0, last_ = 0;
    bool seen_ = false;
};

}  // namespace penstock::access
