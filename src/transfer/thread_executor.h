// An executor with the windows that it works on, and a pool of such objects that callers borrow.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "storage/storage.h"
#include "transfer/executor.h"
#include "transfer/job.h"
#include "transfer/staged_range.h"

namespace penstock::transfer {

// Takes windows of jobs and executes them. One thread at a time.
class ThreadExecutor {
public:
    enum class Taken : uint8_t {
        kNothing,  // the job has no more windows
        kHeld,     // a window; work() and finish() tell when it is done
        kOver,     // small windows, which are done
        kPutBack,  // small windows; they took long, so the job got the rest back
        // Nothing, until the copy of a staged range is done, or until this object is idle for an
        // append.
        kNoStaging,
    };

    // Makes an executor. `device`: null, or given with its `ranges`. All arguments must
    // outlive it.
    static Result<std::unique_ptr<ThreadExecutor>> make(storage::Storage& storage,
                                                        backend::Device* device,
                                                        StagedRanges* ranges,
                                                        const Executor::Limits& limits);

    [[nodiscard]] bool idle() const { return executor_->outstanding() == 0; }
    // Returns whether take() may be called.
    [[nodiscard]] bool can_take() const {
        return executor_->has_room() && !executor_->has_unstarted();
    }
    [[nodiscard]] bool has_copies() const { return executor_->has_copies(); }
    Executor& executor() { return *executor_; }

    Taken take(const std::shared_ptr<Job>& job);
    // Works on the windows held until some of them are done. Without `wait`, stops when there is
    // nothing to do. If `over` is not null, appends the sources of the windows that are done.
    void work(bool wait, std::vector<const Source*>* over);
    // Reports the windows that are done to their jobs; must follow each work(). A thread that waits
    // for a job may continue at once. `deferred` as for Job::finish().
    void finish(Callbacks* deferred = nullptr);

private:
    struct Held {
        std::shared_ptr<Job> job;
        Window window;
        iovec piece{};
        Report report;
        StagedPart staged_part;  // for a window of a staged range
    };

    ThreadExecutor(std::unique_ptr<Executor> executor, StagedRanges* ranges, uint32_t requests);
    Taken take_small(Job& job);
    Taken take_append(Job& job);
    [[nodiscard]] bool holds_torn() const {
        return std::ranges::any_of(
            held_, [](const Held& held) { return held.job != nullptr && held.job->torn(); });
    }

    const std::unique_ptr<Executor> executor_;
    StagedRanges* const staged_ranges_;
    std::vector<Held> held_;
    std::vector<uint32_t> free_;
    std::vector<Outcome> outcomes_;
    size_t over_ = 0;  // outcomes not yet reported to their jobs
};

// Thread executors for callers' own threads, each made when that many are first needed at once. Any
// thread.
class ThreadExecutorPool {
public:
    // Has a cache line of its own, because threads beside each other write to theirs.
    struct alignas(64) Place {
        std::unique_ptr<ThreadExecutor> thread_executor;  // used by the borrower only
        std::atomic_flag borrowed;
    };

    // Arguments as for ThreadExecutor::make.
    ThreadExecutorPool(storage::Storage& storage, backend::Device* device, StagedRanges* ranges,
                       const Executor::Limits& limits, unsigned count)
        : storage_(storage),
          device_(device),
          staged_ranges_(ranges),
          limits_(limits),
          places_(count) {}

    // Returns one of the first `count` places. Returns null if all of these are borrowed or no more
    // can be made.
    Place* borrow(size_t count);
    Place* borrow() { return borrow(places_.size()); }
    static void give_back(Place* place) { place->borrowed.clear(std::memory_order_release); }

private:
    storage::Storage& storage_;
    backend::Device* const device_;
    StagedRanges* const staged_ranges_;
    const Executor::Limits limits_;
    std::vector<Place> places_;
};

}  // namespace penstock::transfer
