// Judges whether a stream's prefetches are worth it: accuracy, lateness and pollution, after every
// 64 completions. It follows feedback-directed prefetching (Srinath et al., HPCA 2007).
//
//   RUNNING   --[accuracy < 0.25]----------------> WARNED
//   WARNED    --[accuracy < 0.25]----------------> SUSPENDED (nothing is prefetched)
//   WARNED    --[accuracy >= 0.25]---------------> RUNNING
//   SUSPENDED --[confirmations in a row]---------> RUNNING, at the smallest scale
//
// Confirmations needed: 2 the first time, then 4, 8 ... 1024. Each judgement with an accuracy above
// 0.9 halves the number. Pure. One thread at a time.
#pragma once

#include <cstdint>

namespace penstock::readahead {

class Feedback {
public:
    enum class State : uint8_t { kRunning, kWarned, kSuspended };

    static constexpr uint32_t kCompletions = 64;  // per judgement
    static constexpr double kScaleMax = 16, kScaleMin = 1.0 / 16;
    static constexpr uint32_t kConfirmationsMin = 2, kConfirmationsMax = 1024;

    // Records that a demand found these bytes prefetched. `late`: they had not arrived yet.
    void used(uint64_t size, bool late);
    // Records that these prefetched bytes are gone or no longer wanted.
    void wasted(uint64_t size);
    // Records that a demand missed bytes that a prefetch of this stream had evicted.
    void polluted() { ++polluted_; }
    // Record that an access came as predicted, or did not. This matters while suspended.
    void confirmed();
    void refuted() { confirmations_ = 0; }

    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] bool suspended() const { return state_ == State::kSuspended; }
    // Returns the factor for the stream's distance.
    [[nodiscard]] double scale() const { return scale_; }
    // Returns how many confirmations end this suspension or the next one.
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
