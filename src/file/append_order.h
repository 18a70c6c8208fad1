// The order in which the appends of one open file run: one at a time, as they were called. Any
// thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "transfer/job.h"

namespace penstock::file {

class AppendOrder : public std::enable_shared_from_this<AppendOrder> {
public:
    // Adds an append. Returns true if no other one is before it: the caller then starts it, on any
    // thread. Otherwise `start` is called when all that were added before are done, on the thread
    // that ends the last of them; it must not block. A cancelled append counts as done.
    [[nodiscard]] bool add(const std::shared_ptr<transfer::Job>& job, std::function<void()> start);

private:
    struct Entry {
        const transfer::Job* job;
        std::function<void()> start;
    };

    void end(const transfer::Job* job);

    std::mutex mutex_;
    std::deque<Entry> entries_;  // the first one runs
};

}  // namespace penstock::file
