// How many prefetched bytes that nobody has used yet all streams of a cache may hold together, and
// how hard they may press on the storage.
//
// Prefetched bytes take the place of bytes that are known to be useful, so at most a quarter of the
// cache is lent to them. Of these a quarter is trust: what streams may lose before anything they
// fetched was of use, all of them together, so that a thousand short streams whose predictions are
// wrong lose no more than one. And demand comes first: when demand waits longer in the queue than
// it does in an idle system, every stream halves its distance.
//
//      CALM --[delay > 1.5 x idle]--> PRESSED (scale halved)
//      PRESSED --[delay > 1.5 x idle]--> PRESSED (scale halved again)
//      PRESSED --[delay <= 1.5 x idle]--> scale doubled; CALM once it is 1
//
// CALM is scale 1, PRESSED anything below; kReports lie between two changes. Shared by the streams
// of a cache: their owner lets one of them in at a time. Pure.
#pragma once

#include <cstdint>

namespace penstock::readahead {

class Budget {
public:
    // Halvings at most: 1/16 of a distance is 1 for nearly all streams.
    static constexpr uint32_t kHalvingsMax = 4;
    // Demands between two changes: one change must have shown its effect before the next.
    static constexpr uint32_t kReports = 32;
    // Delays below this are the noise of an idle queue.
    static constexpr uint64_t kDelayFloorNs = 20'000;

    explicit Budget(uint64_t cache_size) : limit_(cache_size / 4), trust_(limit_ / 4) {}

    // Takes bytes for a prefetch; false: there are not that many left.
    [[nodiscard]] bool reserve(uint64_t size);
    // Gives them back: used, evicted, or never arrived.
    void release(uint64_t size);

    // Lends a stream what it may lose; less than asked where little is left.
    [[nodiscard]] uint64_t lend_trust(uint64_t size);
    // It was earned, or not needed.
    void return_trust(uint64_t size);
    [[nodiscard]] uint64_t trust() const { return trust_; }

    // A demand waited this long before the storage began with it.
    void demand_waited(uint64_t delay_ns);

    // What a stream multiplies its distance by: 1, 1/2, ... 1/16.
    [[nodiscard]] double scale() const { return 1.0 / static_cast<double>(1U << halvings_); }
    [[nodiscard]] uint64_t reserved() const { return reserved_; }
    [[nodiscard]] uint64_t limit() const { return limit_; }

private:
    uint64_t limit_;
    uint64_t reserved_ = 0;
    uint64_t trust_;
    double delay_ns_ = -1;  // smoothed; negative: none yet
    double idle_ns_ = -1;   // the lowest of them, forgotten slowly
    uint32_t halvings_ = 0;
    uint32_t reports_ = 0;  // since the last change
};

}  // namespace penstock::readahead
