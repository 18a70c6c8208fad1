#include "transfer/job_scheduler.h"

#include <algorithm>

namespace penstock::transfer {

JobScheduler::SourceQueue& JobScheduler::queue_of(const Job& job) {
    const Source* source = &job.source();
    SourceQueue& queue = queues_[source];
    if (!queue.jobs.empty()) return queue;
    // If there is one other source and it has just had its turn, this one is next.
    const bool first = order_.size() == 1 && order_.front() == served_;
    order_.insert(first ? order_.begin() : order_.end(), source);
    return queue;
}

void JobScheduler::add(const std::shared_ptr<Job>& job, uint64_t now_ns) {
    queue_of(*job).jobs.push_back(job);
    ++waiting_;
    const Source* source = &job->source();
    if (order_.size() > 1 || (last_ != nullptr && last_ != source))
        shared_until_ns_ = now_ns + kSharedForNs;
    last_ = source;
}

void JobScheduler::restore(const std::shared_ptr<Job>& job) {
    SourceQueue& queue = queue_of(*job);
    if (std::find(queue.jobs.begin(), queue.jobs.end(), job) != queue.jobs.end()) return;
    queue.jobs.push_front(job);
    ++waiting_;
}

// Returns whether the other sources still have a free thread if this thread takes a window of
// `queue`.
bool JobScheduler::may_take(unsigned thread, const SourceQueue& queue, uint64_t now_ns) const {
    if (!keeps_one_ || now_ns >= queue.slow_until_ns || held_.size() == 1) return true;
    if (order_.size() == 1 && now_ns >= shared_until_ns_) return true;
    const auto is_slow = [&](const Source* source) {
        return now_ns < queues_.at(source).slow_until_ns;
    };
    unsigned free = 0;
    for (unsigned i = 0; i < held_.size(); ++i) {
        const bool slow = std::any_of(held_[i].begin(), held_[i].end(), is_slow);
        if (i == thread && slow) return true;
        free += slow ? 0 : 1;
    }
    return free > 1;
}

std::shared_ptr<Job> JobScheduler::begin(unsigned thread, uint64_t now_ns) {
    for (auto at = order_.begin(); at != order_.end(); ++at) {
        const Source* source = *at;
        SourceQueue& queue = queues_.at(source);
        if (!may_take(thread, queue, now_ns)) continue;
        if (order_.size() > 1) {
            order_.erase(at);
            order_.push_back(source);
        }
        served_ = source;
        ++queue.turns;
        held_[thread].push_back(source);
        return queue.jobs.front();
    }
    return nullptr;
}

void JobScheduler::end(unsigned thread, const Source* source, uint64_t ns, uint64_t now_ns) {
    const auto at = queues_.find(source);
    if (ns >= kSlowNs) at->second.slow_until_ns = now_ns + kSlowForNs;
    --at->second.turns;
    std::vector<const Source*>& held = held_[thread];
    held.erase(std::find(held.begin(), held.end(), source));
    forget_if_over(at);
}

void JobScheduler::retire(const std::shared_ptr<Job>& job) {
    const auto at = queues_.find(&job->source());
    if (at == queues_.end()) return;
    std::deque<std::shared_ptr<Job>>& jobs = at->second.jobs;
    const auto found = std::find(jobs.begin(), jobs.end(), job);
    if (found == jobs.end()) return;
    jobs.erase(found);
    --waiting_;
    if (jobs.empty()) order_.erase(std::find(order_.begin(), order_.end(), at->first));
    forget_if_over(at);
}

void JobScheduler::forget_if_over(std::unordered_map<const Source*, SourceQueue>::iterator at) {
    if (at->second.turns == 0 && at->second.jobs.empty()) queues_.erase(at);
}

}  // namespace penstock::transfer
