// Counts the direct operations in flight on one file system, over all executors that share its
// `Costs`, and limits them.
//
// No executor is woken when the count falls below the limit. None needs to be: an executor with
// nothing in flight may always start, and an executor that must wait has operations of its own,
// whose end lets it continue.
//
// Any thread. A Reader belongs to one executor.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

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

}  // namespace penstock::transfer
