#include "access/repeats.h"

#include <algorithm>
#include <bit>

namespace penstock::access {
namespace {

constexpr size_t kRunMin = 4;                   // accesses in a row that confirm a repetition
constexpr size_t kPlacesMax = size_t{1} << 22;  // 16 MiB; longer orders are forgotten

}  // namespace

RepeatTracker::RepeatTracker(std::span<const Access> accesses)
    : accesses_(accesses),
      places_(std::min(std::bit_ceil(std::max<size_t>(accesses.size(), 2)), kPlacesMax)) {}

size_t RepeatTracker::slot_of(size_t at) const {
    uint64_t hash = 0;
    for (const Access& one : {accesses_[at - 1], accesses_[at]}) {
        hash = (hash ^ static_cast<uint64_t>(one.offset)) * 0x9E3779B97F4A7C15u;
        hash = (hash ^ hash >> 32 ^ static_cast<uint64_t>(one.size)) * 0xC2B2AE3D27D4EB4Fu;
    }
    return (hash ^ hash >> 32) & (places_.size() - 1);
}

bool RepeatTracker::observe_next() {
    const size_t at = at_++;
    const bool same = ahead_ != 0 && accesses_[ahead_] == accesses_[at];
    const bool told = same && run_ >= kRunMin;
    if (told) period_ = at - ahead_;
    run_ = same ? run_ + 1 : 0;
    ahead_ = same ? ahead_ + 1 : 0;
    if (at == 0) return false;
    uint32_t& place = places_[slot_of(at)];
    const size_t earlier = place;
    if (!same && earlier != 0 && accesses_[earlier] == accesses_[at] &&
        accesses_[earlier - 1] == accesses_[at - 1]) {
        ahead_ = earlier + 1;
    }
    place = static_cast<uint32_t>(at);
    return told;
}

}  // namespace penstock::access
