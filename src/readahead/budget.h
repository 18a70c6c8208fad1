// Limits the prefetched, unused bytes that all streams of a cache hold together, and their pressure
// on the storage.
//
// Prefetched bytes displace bytes that are known to be useful, so at most a quarter of the cache is
// lent to them. A quarter of that is trust: what all streams together may lose before any of their
// prefetches was used. So a thousand short streams with wrong predictions lose no more than one
// stream. Demand has priority: if it waits longer in the queue than in an idle system, each stream
// halves its distance.
//
//      CALM --[delay > 1.5 x idle]--> PRESSED (scale halved)
//      PRESSED --[delay > 1.5 x idle]--> PRESSED (scale halved again)
//      PRESSED --[delay <= 1.5 x idle]--> scale doubled; CALM once it is 1
//
// CALM is scale 1; PRESSED is anything below. At least kReports demands lie between two changes.
// All streams of a cache share the object, and their owner serialises the calls. Pure.
#pragma once

#include <cstdint>

namespace penstock::readahead {

class Budget {
public:
    // Most halvings. 1/16 of a distance is 1 for nearly all streams.
    static constexpr uint32_t kHalvingsMax = 4;
    // Demands between two changes: the effect of one change must show before the next.
    static constexpr uint32_t kReports = 32;
    // Shorter delays are the noise of an idle queue.
    static constexpr uint64_t kDelayFloorNs = 20'000;

    explicit Budget(uint64_t cache_size) : limit_(cache_size / 4), trust_(limit_ / 4) {}

    // Takes bytes for a prefetch. Returns false if not enough are left.
    [[nodiscard]] bool reserve(uint64_t size);
    // Returns bytes that were used, were evicted, or never arrived.
    void release(uint64_t size);

    // Lends a stream the bytes that it may lose. Returns less than `size` if not enough are left.
    [[nodiscard]] uint64_t lend_trust(uint64_t size);
    // Returns trust that was earned or not needed.
    void return_trust(uint64_t size);
    [[nodiscard]] uint64_t trust() const { return trust_; }

    // Records how long a demand waited before the storage began it.
    void demand_waited(uint64_t delay_ns);

    // Returns the factor for a stream's distance: 1, 1/2, ... 1/16.
    [[nodiscard]] double scale() const { return 1.0 / static_cast<double>(1U << halvings_); }
    [[nodiscard]] uint64_t reserved() const { return reserved_; }
    [[nodiscard]] uint64_t limit() const { return limit_; }

private:
    uint64_t limit_;
    uint64_t reserved_ = 0;
    uint64_t trust_;
    double delay_ns_ = -1;  // smoothed; negative: none yet
    double idle_ns_ = -1;   // the lowest delay, forgotten slowly
    uint32_t halvings_ = 0;
    uint32_t reports_ = 0;  // since the last change
};

}  // namespace penstock::readahead
