#include "transfer/thread_executor.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/torn_reads.h"

namespace penstock::transfer {
namespace {

// Small windows that a thread takes at once. Slow ones are announced to the kernel together. Of
// fast ones it takes fewer, or the end of a call would wait for one thread.
constexpr size_t kSmallBatch = 16, kSlowBatch = 32;
// A thread works on a batch for this time, in the clock's granularity, and until the operation in
// progress ends. Other jobs wait meanwhile.
constexpr uint64_t kBatchNs = 5'000'000;

// Returns whether all small windows of the job are certain to be read into the OS page cache and
// may stay there.
bool stays_in_cache(const Job& job) {
    const planner::RoutePolicy policy = job.source().policy(job.options());
    return policy.goes_through_cache(job.window_size_max()) && !policy.wants_drop();
}

// Announces all windows to the kernel before the first is read. Then missing bytes arrive at the
// depth of a batch, not one by one. If the windows form one range the kernel reads ahead by itself.
void announce(const Job& job, std::span<const Window> windows) {
    for (size_t i = 0, next; i < windows.size(); i = next) {
        const uint64_t begin = windows[i].offset;
        uint64_t end = begin + windows[i].size;
        for (next = i + 1; next < windows.size() && windows[next].offset == end; ++next)
            end += windows[next].size;
        if (next - i == windows.size()) return;
        job.source().file->announce(begin, end - begin);
    }
}

}  // namespace

Result<std::unique_ptr<ThreadExecutor>> ThreadExecutor::make(storage::Storage& storage,
                                                             backend::Device* device,
                                                             StagedRanges* ranges,
                                                             const Executor::Limits& limits) {
    auto executor = Executor::create(storage, device, limits);
    if (!executor.ok()) return executor.status();
    return std::unique_ptr<ThreadExecutor>(
        new ThreadExecutor(std::move(executor.value()), ranges, limits.requests));
}

ThreadExecutor::ThreadExecutor(std::unique_ptr<Executor> executor, StagedRanges* ranges,
                               uint32_t requests)
    : executor_(std::move(executor)), staged_ranges_(ranges), held_(requests) {
    for (uint32_t i = 0; i < requests; ++i) free_.push_back(i);
    outcomes_.resize(requests);
}

ThreadExecutor::Taken ThreadExecutor::take(const std::shared_ptr<Job>& job) {
    Window window;
    const base::TornReads torn(job->torn());
    if (job->append()) return idle() ? take_append(*job) : Taken::kNoStaging;
    const planner::RoutePolicy policy = job->source().policy(job->options());
    const bool small = policy.is_small(job->window_size_max()) && !job->device_memory();
    // Missing windows arrive sooner with others in flight.
    const bool planned = small && !job->write() && job->scattered() &&
                         job->source().plans_small(policy, job->window_size_max());
    if (idle() && small && !planned) return take_small(*job);
    if (job->take({&window, 1}, staged_ranges_) == 0)
        return staged_ranges_ != nullptr && job->has_windows() ? Taken::kNoStaging
                                                               : Taken::kNothing;
    const uint32_t index = free_.back();
    free_.pop_back();
    Held& held = held_[index];
    held.job = job;
    held.window = window;
    held.report = {};
    held.piece = {window.to, window.size};
    Request request;
    request.source = &job->source();
    request.offset = window.offset;
    request.size = window.size;
    request.pieces = {&held.piece, 1};
    request.device_memory = job->device_memory();
    request.write = job->write();
    request.options = job->options();
    request.report = &held.report;
    if (window.range != nullptr) {
        held.staged_part = {
            StagedRanges::memory(*window.range, request.offset), request.offset, {}, {}};
        request.staged_part = &held.staged_part;
    }
    request.cookie = index;
    (void)executor_->submit(request);  // take() is called only if there is room
    return Taken::kHeld;
}

void ThreadExecutor::work(bool wait, std::vector<const Source*>* over) {
    {
        const base::TornReads torn(base::TornReads::kMarks && holds_torn());
        over_ = executor_->reap(outcomes_, wait);
    }
    if (over == nullptr) return;
    for (size_t i = 0; i < over_; ++i) over->push_back(&held_[outcomes_[i].cookie].job->source());
}

void ThreadExecutor::finish(Callbacks* deferred) {
    for (size_t i = 0; i < over_; ++i) {
        Held& held = held_[outcomes_[i].cookie];
        const std::shared_ptr<Job> job = std::move(held.job);
        const Window window = held.window;
        const Report report = held.report;
        StagedPart staged_part = std::move(held.staged_part);
        free_.push_back(static_cast<uint32_t>(outcomes_[i].cookie));
        if (window.range != nullptr) {
            const uint64_t staged_size = staged_ranges_->finish_window(
                {window, outcomes_[i], report, std::move(staged_part)}, deferred);
            if (staged_size > 0) job->all_staged(staged_size);
            continue;
        }
        job->finish({&window, 1}, {&outcomes_[i], 1}, report, deferred);
    }
    over_ = 0;
}

// Takes all windows, whose bytes the storage is to write as one.
ThreadExecutor::Taken ThreadExecutor::take_append(Job& job) {
    std::vector<iovec> pieces;
    uint64_t most = 0;  // a window that is not its piece's last has kPlanSizeMin bytes or more
    for (const Piece& piece : job.pieces()) {
        pieces.push_back({piece.to, piece.size});
        most += piece.size / kPlanSizeMin + 2;
    }
    std::vector<Window> windows(most);
    windows.resize(job.take(windows));
    if (windows.empty()) return Taken::kNothing;
    PENSTOCK_CHECK(!job.has_windows(), "one thread takes all of an append");
    const SmallOutcome done = executor_->append(job.source(), pieces, job.device_memory(),
                                                job.options());
    Report report;
    report.offset = done.completion.offset;
    add_to(&report, report.offset, done);
    std::vector<Outcome> outcomes;
    uint64_t left = done.completion.bytes;
    for (const Window& window : windows) {
        const uint64_t bytes = std::min(left, window.size);
        outcomes.push_back({0, bytes, bytes < window.size ? done.completion.error : 0});
        left -= bytes;
    }
    job.finish(windows, outcomes, report);
    return Taken::kOver;
}

// Takes many small pieces at once, because a lock for each would cost as much as some of the reads.
ThreadExecutor::Taken ThreadExecutor::take_small(Job& job) {
    std::array<Window, kSlowBatch> windows;
    std::array<Outcome, kSlowBatch> outcomes;
    Source& source = job.source();
    const bool slow = source.trial.slow_batches();
    const size_t count = job.take(std::span(windows).first(slow ? kSlowBatch : kSmallBatch));
    if (count == 0) return Taken::kNothing;
    const std::span<const Window> all(windows.data(), count);
    if (!job.write() && slow && stays_in_cache(job)) announce(job, all);
    const uint64_t begin_ns = base::monotonic_ns();
    const uint64_t limit_ns = base::coarse_ns() + kBatchNs;
    Report report;
    size_t over = 0;
    do {
        const Window& window = windows[over];
        const iovec memory{window.to, window.size};
        const SmallOutcome outcome = executor_->move_small(source, window.offset, memory,
                                                           job.write(), job.options());
        add_to(&report, window.offset, outcome);
        outcomes[over++] = {0, outcome.completion.bytes, outcome.completion.error};
    } while (over < count && base::coarse_ns() < limit_ns);
    if (!job.write())
        source.trial.record_batch(over, report.bytes, base::monotonic_ns() - begin_ns);
    if (over < count) job.put_back(all.subspan(over));
    job.finish(all.first(over), {outcomes.data(), over}, report);
    return over < count ? Taken::kPutBack : Taken::kOver;
}

ThreadExecutorPool::Place* ThreadExecutorPool::borrow(size_t count) {
    for (Place& place : std::span(places_).first(std::min(count, places_.size()))) {
        // The look before takes the cache line from no other thread.
        if (place.borrowed.test(std::memory_order_relaxed)) continue;
        if (place.borrowed.test_and_set(std::memory_order_acquire)) continue;
        if (place.thread_executor != nullptr) return &place;
        auto made = ThreadExecutor::make(storage_, device_, staged_ranges_, limits_);
        if (made.ok()) {
            place.thread_executor = std::move(made.value());
            return &place;
        }
        give_back(&place);
        return nullptr;
    }
    return nullptr;
}

}  // namespace penstock::transfer
