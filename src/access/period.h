// Tracks the last deltas of a stream: the period with which they repeat, and the majority among
// them.
//
// The border function would refer to one beginning. Instead, the run of agreement is kept for all
// periods at once. It restarts by itself where the stream changes, and 32 counters are a few vector
// instructions. Majority: after Leap, ATC 2020. Pure, no allocation; one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "access/program.h"

namespace penstock::access {

class DeltaTracker {
public:
    void observe(const Delta& delta);
    void reset() { *this = {}; }

    static constexpr uint32_t kEnough = 6;

    // Returns the shortest period with which the last deltas repeated once, for at least
    // `count_min` deltas or kEnough. Fewer suffice for deltas that were not among the last 32
    // before. Returns 0 if there is none.
    [[nodiscard]] size_t period(uint32_t count_min) const;
    // Returns the delta `ahead` places from now (0: the next one), if the last `period` deltas
    // repeat.
    [[nodiscard]] const Delta& ahead(size_t period, size_t ahead) const {
        return ring_[(count_ - period + ahead % period) % kPeriodMax];
    }
    // Returns the delta of more than half of the last 32, or null if there is none.
    [[nodiscard]] const Delta* majority() const {
        return 2 * agreeing_ > kPeriodMax ? &candidate_ : nullptr;
    }

private:
    [[nodiscard]] bool is_novel(size_t period) const;
    void vote(const Delta& delta, const Delta& gone);

    std::array<uint32_t, kPeriodMax> hashes_{};  // the latest first
    std::array<uint32_t, kPeriodMax> runs_{};    // of agreement with the delta p + 1 places before
    std::array<Delta, kPeriodMax> ring_{};
    uint64_t count_ = 0;
    Delta candidate_, rival_;
    size_t agreeing_ = 0, rival_votes_ = 0;
};

}  // namespace penstock::access
