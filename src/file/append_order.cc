#include "file/append_order.h"

#include <algorithm>
#include <utility>

namespace penstock::file {

bool AppendOrder::add(const std::shared_ptr<transfer::Job>& job, std::function<void()> start) {
    bool first = false;
    {
        const std::lock_guard lock(mutex_);
        first = entries_.empty();
        entries_.push_back({job.get(), std::move(start)});
    }
    job->on_done([order = shared_from_this(), over = job.get()] { order->end(over); });
    return first;
}

void AppendOrder::end(const transfer::Job* job) {
    std::function<void()> next;
    {
        const std::lock_guard lock(mutex_);
        const bool ran = entries_.front().job == job;
        std::erase_if(entries_, [job](const Entry& entry) { return entry.job == job; });
        if (ran && !entries_.empty()) next = std::exchange(entries_.front().start, nullptr);
    }
    if (next) next();
}

}  // namespace penstock::file
