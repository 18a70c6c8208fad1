// A watch that a benchmark with many cells looks at. One thread.
#pragma once

#include <chrono>

namespace penstock::bench {

// Starts when it is made. With it a run ends within 25 minutes, even if the machine is slower than
// the machines for which the cells were chosen.
class Watch {
public:
    [[nodiscard]] bool past() const { return std::chrono::steady_clock::now() > end_; }

private:
    const std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::now() +
                                                       std::chrono::minutes(23);
};

}  // namespace penstock::bench
