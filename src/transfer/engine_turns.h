// Whose job an engine's threads work on next: sources take turns, the jobs of one are done in
// order. A source whose operations take long leaves one thread to the others while there are any.
//
// Not synchronised: the engine's lock guards it. Time is an argument.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transfer/job.h"

namespace penstock::transfer {

class Turns {
public:
    // A turn that takes so long holds others up, and its source is slow for a while.
    static constexpr uint64_t kSlowNs = 50'000'000, kSlowForNs = 5'000'000'000;
    // So long after jobs of two sources met more of both are expected.
    static constexpr uint64_t kSharedForNs = 2'000'000'000;

    explicit Turns(unsigned threads) : held_(threads) {}

    // Jobs with windows that nobody has taken.
    [[nodiscard]] size_t waiting() const { return waiting_; }

    void add(const std::shared_ptr<Job>& job, uint64_t now_ns);
    // The same of a job that may be waiting already; it comes first.
    void restore(const std::shared_ptr<Job>& job);
    // A turn of thread `thread`: a job to take windows of; null: there is none for this thread.
    std::shared_ptr<Job> begin(unsigned thread, uint64_t now_ns);
    // One of its turns at `source` is over and took `ns`.
    void end(unsigned thread, const Source* source, uint64_t ns, uint64_t now_ns);
    // No more jobs will come: no thread is left to others any longer.
    void share_all() { keeps_one_ = false; }
    // Nothing of `job` is left to take.
    void retire(const std::shared_ptr<Job>& job);

private:
    // A source with jobs that wait or turns that last.
    struct Line {
        std::deque<std::shared_ptr<Job>> jobs;  // oldest first
        unsigned turns = 0;
        uint64_t slow_until_ns = 0;
    };

    Line& line_of(const Job& job);
    void forget_if_over(std::unordered_map<const Source*, Line>::iterator at);
    [[nodiscard]] bool may_take(unsigned thread, const Line& line, uint64_t now_ns) const;

    std::unordered_map<const Source*, Line> lines_;
    std::deque<const Source*> order_;  // those with jobs; whose turn is next comes first
    std::vector<std::vector<const Source*>> held_;  // by thread: of its turns that last
    size_t waiting_ = 0;
    bool keeps_one_ = true;           // a thread, from slow sources
    const Source* last_ = nullptr;    // whose job was added last
    const Source* served_ = nullptr;  // whose turn began last
    uint64_t shared_until_ns_ = 0;
};

}  // namespace penstock::transfer
