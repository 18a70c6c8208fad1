// The bytes lent to prefetches, and the pressure on demand.
#include "readahead/budget.h"

#include <algorithm>

#include "base/check.h"

namespace penstock::readahead {

bool Budget::reserve(uint64_t size) {
    if (size > limit_ - reserved_) return false;
    reserved_ += size;
    return true;
}

void Budget::release(uint64_t size) {
    PENSTOCK_CHECK(size <= reserved_, "prefetched bytes are given back once");
    reserved_ -= size;
}

uint64_t Budget::lend_trust(uint64_t size) {
    const uint64_t lent = std::min(size, trust_);
    trust_ -= lent;
    return lent;
}

void Budget::return_trust(uint64_t size) {
    PENSTOCK_CHECK(size <= limit_ / 4 - trust_, "trust is returned once");
    trust_ += size;
}

void Budget::demand_waited(uint64_t delay_ns) {
    const auto delay = static_cast<double>(std::max(delay_ns, kDelayFloorNs));
    delay_ns_ = delay_ns_ < 0 ? delay : delay_ns_ + (delay - delay_ns_) / 8;
    // The idle delay rises slowly, so that a storage that got slower for good does not look pressed
    // forever.
    idle_ns_ = idle_ns_ < 0 ? delay : std::min(delay_ns_, idle_ns_ * 1.0005);
    if (++reports_ < kReports) return;
    if (delay_ns_ > 1.5 * idle_ns_) {
        halvings_ = std::min(halvings_ + 1, kHalvingsMax);
        reports_ = 0;
    } else if (halvings_ > 0) {
        --halvings_;
        reports_ = 0;
    }
}

}  // namespace penstock::readahead
