// Runs of windows that storage works on from one call of a worker to the next.
//
// They begin when they are requested, and a thread that waits completes them. So the storage works
// while blocks copy, and a waiting thread continues with the first window that arrives. One thread
// at a time, except for empty().
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "penstock/abi/limits.h"
#include "service/read_run.h"

namespace penstock::service {

class PendingWindows {
public:
    // The most windows at a time: what three sequential streams have. Others are read at once.
    static constexpr size_t kWindowsMax = 64;
    static_assert(kWindowsMax >= 3 * limits::kWindowsMax);

    PendingWindows();

    // Returns whether there is none. Any thread.
    [[nodiscard]] bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }
    // Returns whether a run that has not ended is `hot`.
    [[nodiscard]] bool has_hot() const;

    // Adds a copy of a run, which holds its source. Returns null if there is no room. The copy
    // stays until release_ended() after end().
    ReadRun* add(const ReadRun& run, std::shared_ptr<transfer::Source> source);
    void end(const ReadRun& run);
    void release_ended();

private:
    struct Pending {
        ReadRun run;
        std::vector<Request> requests;
        std::vector<iovec> pieces;
        std::shared_ptr<transfer::Source> source;
    };
    using Runs = std::vector<std::unique_ptr<Pending>>;

    std::atomic<size_t> count_{0};  // windows of in_flight_ and ended_
    Runs in_flight_, ended_, free_;
};

}  // namespace penstock::service
