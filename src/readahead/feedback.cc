// Judgements over 64 completions, suspension and re-arming.
#include "readahead/feedback.h"

#include <algorithm>

namespace penstock::readahead {

void Feedback::used(uint64_t size, bool late) {
    ++uses_;
    late_ += late ? 1 : 0;
    used_size_ += size;
    complete();
}

void Feedback::wasted(uint64_t size) {
    wasted_size_ += size;
    complete();
}

void Feedback::complete() {
    if (++completions_ < kCompletions) return;
    // Completions of fetches in flight at the suspension say nothing new.
    if (state_ != State::kSuspended) judge();
    forget();
}

void Feedback::forget() {
    completions_ = uses_ = late_ = polluted_ = 0;
    used_size_ = wasted_size_ = 0;
}

void Feedback::judge() {
    const uint64_t fetched = used_size_ + wasted_size_;
    const double accuracy = fetched == 0
                                ? 1
                                : static_cast<double>(used_size_) / static_cast<double>(fetched);
    if (accuracy < 0.25) {
        scale_ = std::max(scale_ / 2, kScaleMin);
        if (state_ == State::kRunning) {
            state_ = State::kWarned;
            return;
        }
        state_ = State::kSuspended;
        ++suspensions_;
        confirmations_ = 0;
        return;
    }
    state_ = State::kRunning;
    // One miss in sixteen completions, on bytes that a prefetch evicted, costs as much as poor
    // accuracy.
    if (accuracy < 0.5 || polluted_ * 16 > kCompletions) {
        scale_ = std::max(scale_ / 2, kScaleMin);
    } else if (accuracy > 0.9) {
        // Late: more than one use in eight had to wait.
        if (late_ * 8 > uses_) scale_ = std::min(scale_ * 2, kScaleMax);
        needed_ = std::max(needed_ / 2, kConfirmationsMin);
    }
}

void Feedback::confirmed() {
    if (state_ != State::kSuspended || ++confirmations_ < needed_) return;
    state_ = State::kRunning;
    scale_ = kScaleMin;
    needed_ = std::min(needed_ * 2, kConfirmationsMax);
    forget();
}

}  // namespace penstock::readahead
