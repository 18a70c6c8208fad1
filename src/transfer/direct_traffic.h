// Direct operations in flight on one file system, over all executors that share its `Costs`, and
// how many there may be.
//
// Nobody is woken for a place that falls free: an executor that has nothing in flight may always
// start, one that holds back has operations of its own that end, and goes on then.
//
// Any thread; a Reader is its executor's.
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
    // What one executor has in flight here.
    struct Reader {
        uint32_t in_flight = 0;
        uint32_t ended = 0;  // operations of which tell() has not told
        uint64_t ended_size = 0;
    };

    // Whether `reader` may have one more operation in flight, of `size` bytes: where all together
    // are at the limit only up to its share, so that who comes later gets one too.
    [[nodiscard]] bool may_start(const Reader& reader, uint64_t size) const {
        if (reader.in_flight == 0) return true;
        const uint32_t limit = limits_[class_of(size)].load(kOrder);
        if (in_flight_.load(kOrder) < limit) return true;
        const uint32_t readers = readers_.load(kOrder);
        return reader.in_flight < limit / (readers > 0 ? readers : 1);
    }
    void start(Reader* reader);
    // One is over and brought `size` bytes.
    void end(Reader* reader, uint64_t size);
    // All that were found to be over at once have ended. `late`: their executor may have been busy
    // with something else when they were.
    void tell(Reader* reader, bool late);

    // From now on the limit is `depth`; nothing is tried.
    void hold_at(uint32_t depth);
    [[nodiscard]] uint32_t in_flight() const { return in_flight_.load(kOrder); }
    // Of operations of `size` bytes, but for what is being tried.
    [[nodiscard]] uint32_t depth(uint64_t size) const {
        const std::lock_guard lock(mutex_);
        return tuners_[class_of(size)].depth();
    }
    // Another depth than that is at work.
    [[nodiscard]] bool trying() const { return trying_.load(kOrder); }

private:
    // The counts guard no other memory, and a limit may be met a moment late.
    static constexpr std::memory_order kOrder = std::memory_order_relaxed;
    // A device is busy with a few long operations, and with many short ones.
    static constexpr uint64_t kShortMax = 128 << 10;
    static size_t class_of(uint64_t size) { return size < kShortMax ? 0 : 1; }

    std::atomic<uint32_t> in_flight_{0}, readers_{0};
    std::array<std::atomic<uint32_t>, 2> limits_{planner::Concurrency::kMax,
                                                 planner::Concurrency::kStart};
    std::atomic<bool> trying_{false};
    std::atomic<uint64_t> begin_ns_{0};  // when the first started that found the device idle

    mutable std::mutex mutex_;  // guards what follows
    std::array<planner::Concurrency, 2> tuners_{planner::Concurrency(planner::Concurrency::kMax),
                                                planner::Concurrency()};
    bool held_ = false;
    uint64_t told_ns_ = 0;
    size_t told_class_ = 1;
};

}  // namespace penstock::transfer
