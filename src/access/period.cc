#include "access/period.h"

#include <algorithm>

namespace penstock::access {

void DeltaTracker::observe(const Delta& delta) {
    const uint64_t mixed = (static_cast<uint64_t>(delta.offset) * 0x9E3779B97F4A7C15u) ^
                           (static_cast<uint64_t>(delta.size) * 0xC2B2AE3D27D4EB4Fu);
    // Never 0, because the places before the first delta hold 0.
    const uint32_t hash = static_cast<uint32_t>(mixed >> 32 ^ mixed) | 1;
    for (size_t p = 0; p < kPeriodMax; ++p) runs_[p] = hashes_[p] == hash ? runs_[p] + 1 : 0;
    std::copy_backward(hashes_.begin(), hashes_.end() - 1, hashes_.end());
    hashes_[0] = hash;
    Delta& place = ring_[count_ % kPeriodMax];
    const Delta gone = place;
    place = delta;
    ++count_;
    vote(delta, gone);
}

// Boyer and Moore's vote finds a rival. It is counted only when the candidate has lost its
// majority, so that few accesses cost a recount.
void DeltaTracker::vote(const Delta& delta, const Delta& gone) {
    if (count_ > kPeriodMax && gone == candidate_) --agreeing_;
    if (delta == candidate_ && count_ > 1) ++agreeing_;
    if (rival_votes_ == 0) rival_ = delta;
    rival_votes_ = delta == rival_ ? std::min(rival_votes_ + 1, kPeriodMax) : rival_votes_ - 1;
    if (majority() != nullptr || rival_ == candidate_ || count_ % 4 != 0) return;
    const size_t seen = std::min<uint64_t>(count_, kPeriodMax);
    const auto agree = static_cast<size_t>(
        std::count(ring_.begin(), ring_.begin() + static_cast<ptrdiff_t>(seen), rival_));
    if (agree <= agreeing_) return;
    candidate_ = rival_;
    agreeing_ = agree;
}

// Returns whether none of the last `period` deltas is among those before their first occurrence. A
// stream that chooses from a few deltas repeats some by chance, but only deltas that it had before.
bool DeltaTracker::is_novel(size_t period) const {
    for (size_t old = runs_[period - 1] + period; old < kPeriodMax; ++old) {
        for (size_t p = 0; p < period; ++p) {
            if (hashes_[old] == hashes_[p]) return false;
        }
    }
    return true;
}

size_t DeltaTracker::period(uint32_t count_min) const {
    for (size_t p = 1; p <= kPeriodMax; ++p) {
        const size_t run = runs_[p - 1];
        if (run < std::max<size_t>(p, 2)) continue;
        if (run >= std::min(count_min, kEnough) || is_novel(p)) return p;
    }
    return 0;
}

}  // namespace penstock::access
