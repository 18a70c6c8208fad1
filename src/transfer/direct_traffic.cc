#include "transfer/direct_traffic.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace penstock::transfer {

void DirectTraffic::start(Reader* reader) {
    if (reader->in_flight++ == 0) readers_.fetch_add(1, kOrder);
    if (in_flight_.fetch_add(1, kOrder) == 0) begin_ns_.store(base::monotonic_ns(), kOrder);
}

void DirectTraffic::end(Reader* reader, uint64_t size) {
    ++reader->ended;
    reader->ended_size += size;
    if (--reader->in_flight == 0) readers_.fetch_sub(1, kOrder);
    in_flight_.fetch_sub(1, kOrder);
}

void DirectTraffic::hold_at(uint32_t depth) {
    const std::lock_guard lock(mutex_);
    held_ = true;
    trying_.store(false, kOrder);
    for (std::atomic<uint32_t>& limit : limits_) limit.store(depth, kOrder);
}

void DirectTraffic::tell(Reader* reader, bool late) {
    const uint32_t ended = std::exchange(reader->ended, 0);
    const uint64_t size = std::exchange(reader->ended_size, 0);
    if (ended == 0) return;
    const uint32_t in_flight = in_flight_.load(kOrder) + ended;
    const uint64_t now_ns = base::monotonic_ns();
    const size_t told_class = class_of(size / ended);
    const std::lock_guard lock(mutex_);
    if (held_) return;
    planner::Concurrency& tuner = tuners_[told_class];
    const uint64_t since_ns = std::max(told_ns_, begin_ns_.load(kOrder));
    if (late || told_class != told_class_) {
        tuners_[told_class_].interrupt();
        tuner.interrupt();
    } else {
        tuner.saw(
            {ended, size, static_cast<double>(now_ns - std::min(now_ns, since_ns)), in_flight});
    }
    told_ns_ = now_ns;
    limits_[told_class_].store(tuners_[told_class_].limit(), kOrder);
    limits_[told_class].store(tuner.limit(), kOrder);
    told_class_ = told_class;
    trying_.store(tuner.trying(), kOrder);
}

bool DirectReaders::may_start(const DirectTraffic& traffic, uint64_t size) const {
    for (const Share& share : shares_) {
        if (share.traffic == &traffic) return traffic.may_start(share.reader, size);
    }
    return true;
}

DirectReaders::Share& DirectReaders::share_of(DirectTraffic& traffic) {
    for (Share& share : shares_) {
        if (share.traffic == &traffic) return share;
    }
    return shares_.emplace_back(Share{&traffic, {}, cached_calls_});
}

void DirectReaders::tell() {
    for (Share& share : shares_) {
        if (share.reader.ended == 0) continue;
        share.traffic->tell(&share.reader, share.cached_calls != cached_calls_);
        share.cached_calls = cached_calls_;
    }
    std::erase_if(shares_, [](const Share& share) { return share.reader.in_flight == 0; });
}

}  // namespace penstock::transfer
