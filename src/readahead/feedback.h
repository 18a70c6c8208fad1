// Whether a stream's prefetches were worth it: accuracy, lateness and pollution, judged every 64
// completions, after feedback-directed prefetching (Srinath et al., HPCA 2007).
//
//   RUNNING   --[accuracy < 0.25]----------------> WARNED
//   WARNED    --[accuracy < 0.25]----------------> SUSPENDED (nothing is prefetched)
//   WARNED    --[accuracy >= 0.25]---------------> RUNNING
//   SUSPENDED --[confirmations in a row]---------> RUNNING, at the smallest scale
//
// Confirmations: 2 the first time, then 4, 8 ... 1024; one step back for every judgement above 0.9.
// Pure. One thread at a time.
#pragma once

#include <cstdint>

namespace penstock::readahead {

class Feedback {
public:
    enum class State : uint8_t { kRunning, kWarned, kSuspended };

    static constexpr uint32_t kCompletions = 64;  // to a judgement
    static constexpr double kScaleMax = 16, kScaleMin = 1.0 / 16;
    static constexpr uint32_t kConfirmationsMin = 2, kConfirmationsMax = 1024;

    // A demand found these bytes prefetched; late: they had not arrived yet.
    void used(uint64_t size, bool late);
    // These were prefetched and are gone, or are wanted no more.
    void wasted(uint64_t size);
    // A demand missed bytes that a prefetch of this stream had evicted.
    void polluted() { ++polluted_; }
    // An access came as predicted, or did not: matters while suspended.
    void confirmed();
    void refuted() { confirmations_ = 0; }

    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] bool suspended() const { return state_ == State::kSuspended; }
    // What the stream multiplies its distance by.
    [[nodiscard]] double scale() const { return scale_; }
    // How many it takes to leave the suspension, now or the next time.
    [[nodiscard]] uint32_t confirmations_needed() const { return needed_; }
    [[nodiscard]] uint64_t suspensions() const { return suspensions_; }

private:
    void complete();
    void judge();
    void forget();

    State state_ = State::kRunning;
    double scale_ = 1;
    uint32_t needed_ = kConfirmationsMin;
    uint32_t confirmations_ = 0;
    uint64_t suspensions_ = 0;
    // Since the last judgement.
    uint32_t completions_ = 0;
    uint32_t uses_ = 0, late_ = 0, polluted_ = 0;
    uint64_t used_size_ = 0, wasted_size_ = 0;
};

}  // namespace penstock::readahead
