// Counts the direct operations in flight on one file system, over all executors that share its
// `Costs`, and limits them.
//
// No executor is woken when the count falls below the limit. None needs to be: an executor with
// nothing in flight may always start, and an executor that must wait has operations of its own,
// whose end lets it continue.
//
// DirectTraffic: any thread. DirectReaders: one thread; each executor has its own.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "planner/concurrency.h"

namespace penstock::transfer {

class DirectTraffic {
public:
    // The operations of one executor on this file system.
    struct Reader {
        uint32_t in_flight = 0;
        uint32_t ended = 0;  // operations not yet reported by tell()
        uint64_t ended_size = 0;
    };

    // Returns whether `reader` may start one more operation of `size` bytes. If the limit is
    // reached, each reader may have only its share, so that a reader that comes later gets one too.
    [[nodiscard]] bool may_start(const Reader& reader, uint64_t size) const {
        if (reader.in_flight == 0) return true;
        const uint32_t limit = limits_[class_of(size)].load(kOrder);
        if (in_flight_.load(kOrder) < limit) return true;
        const uint32_t readers = readers_.load(kOrder);
        return reader.in_flight < limit / (readers > 0 ? readers : 1);
    }
    void start(Reader* reader);
    // Records that one operation has ended and brought `size` bytes.
    void end(Reader* reader, uint64_t size);
    // Reports the operations that were found to have ended at the same time. `late`: the executor
    // may have been busy when they ended.
    void tell(Reader* reader, bool late);

    // Sets the limit to `depth` and stops all trials.
    void hold_at(uint32_t depth);
    [[nodiscard]] uint32_t in_flight() const { return in_flight_.load(kOrder); }
    // Returns the depth for operations of `size` bytes, without a trial.
    [[nodiscard]] uint32_t depth(uint64_t size) const {
        const std::lock_guard lock(mutex_);
        return tuners_[class_of(size)].depth();
    }
    // Returns whether another depth than that is on trial.
    [[nodiscard]] bool trying() const { return trying_.load(kOrder); }

private:
    // Relaxed: the counts guard no other memory, and a limit may be noticed late.
    static constexpr std::memory_order kOrder = std::memory_order_relaxed;
    // A few long operations keep a device busy; short ones must be many. So the two classes have
    // their own limits.
    static constexpr uint64_t kShortMax = 128 << 10;
    static size_t class_of(uint64_t size) { return size < kShortMax ? 0 : 1; }

    std::atomic<uint32_t> in_flight_{0}, readers_{0};
    std::array<std::atomic<uint32_t>, 2> limits_{planner::Concurrency::kMax,
                                                 planner::Concurrency::kStart};
    std::atomic<bool> trying_{false};
    std::atomic<uint64_t> begin_ns_{0};  // start of the first operation on an idle device

    mutable std::mutex mutex_;  // guards the members below
    std::array<planner::Concurrency, 2> tuners_{planner::Concurrency(planner::Concurrency::kMax),
                                                planner::Concurrency()};
    bool held_ = false;
    uint64_t told_ns_ = 0;
    size_t told_class_ = 1;
};

// The operations of one executor, by file system.
class DirectReaders {
public:
    // Takes memory for `requests` requests in progress, each on its own file system.
    explicit DirectReaders(uint32_t requests) { shares_.reserve(requests); }

    [[nodiscard]] bool may_start(const DirectTraffic& traffic, uint64_t size) const;
    void start(DirectTraffic& traffic) { traffic.start(&share_of(traffic).reader); }
    void end(DirectTraffic& traffic, uint64_t size) {
        traffic.end(&share_of(traffic).reader, size);
    }
    // Records a cached call. It keeps the executor from noticing ends meanwhile.
    void count_cached() { ++cached_calls_; }
    // Reports the operations that were found to have ended at the same time.
    void tell();

private:
    struct Share {
        DirectTraffic* traffic = nullptr;
        DirectTraffic::Reader reader;
        uint64_t cached_calls = 0;  // cached_calls_ at the last tell()
    };

    Share& share_of(DirectTraffic& traffic);

    std::vector<Share> shares_;  // at most one per file system
    uint64_t cached_calls_ = 0;
};

}  // namespace penstock::transfer
