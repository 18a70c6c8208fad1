// Chooses the job that a thread of the engine works on next. Sources take turns; the jobs of one
// source are served in order. A source whose operations take long leaves one thread to the other
// sources, while there are any.
//
// Not synchronised: the engine's mutex guards it. Time is an argument.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transfer/job.h"

namespace penstock::transfer {

class JobScheduler {
public:
    // A turn of at least kSlowNs delays other sources. Its source then counts as slow for
    // kSlowForNs.
    static constexpr uint64_t kSlowNs = 50'000'000, kSlowForNs = 5'000'000'000;
    // After jobs of two sources were present at once, more of both are expected for this time.
    static constexpr uint64_t kSharedForNs = 2'000'000'000;

    explicit JobScheduler(unsigned threads) : held_(threads) {}

    // Returns the count of jobs with windows that no thread has taken.
    [[nodiscard]] size_t waiting() const { return waiting_; }

    void add(const std::shared_ptr<Job>& job, uint64_t now_ns);
    // Adds a job that may be waiting already, at the front.
    void restore(const std::shared_ptr<Job>& job);
    // Begins a turn of thread `thread`. Returns a job whose windows it may take, or null if there
    // is none for it.
    std::shared_ptr<Job> begin(unsigned thread, uint64_t now_ns);
    // Ends one of the thread's turns at `source`. The turn took `ns`.
    void end(unsigned thread, const Source* source, uint64_t ns, uint64_t now_ns);
    // Reserves no thread from now on, because no more jobs will come.
    void share_all() { keeps_one_ = false; }
    // Removes `job`, which has no more windows to take.
    void retire(const std::shared_ptr<Job>& job);

private:
    // A source with waiting jobs or with turns in progress.
    struct SourceQueue {
        std::deque<std::shared_ptr<Job>> jobs;  // oldest first
        unsigned turns = 0;
        uint64_t slow_until_ns = 0;
    };

    SourceQueue& queue_of(const Job& job);
    void forget_if_over(std::unordered_map<const Source*, SourceQueue>::iterator at);
    [[nodiscard]] bool may_take(unsigned thread, const SourceQueue& queue, uint64_t now_ns) const;

    std::unordered_map<const Source*, SourceQueue> queues_;
    std::deque<const Source*> order_;  // sources with jobs; the next one to serve is first
    std::vector<std::vector<const Source*>> held_;  // by thread: sources of its turns in progress
    size_t waiting_ = 0;
    bool keeps_one_ = true;           // slow sources must leave one thread free
    const Source* last_ = nullptr;    // source of the job added last
    const Source* served_ = nullptr;  // source of the turn begun last
    uint64_t shared_until_ns_ = 0;
};

}  // namespace penstock::transfer
