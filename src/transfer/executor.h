// Plans requests and executes the plans: residency, planner, storage, staging, completion.
//
// Only executors call Queue::submit. One thread at a time; each transferring thread has its own
// executor. The constructor takes the memory, with two exceptions: lists grow to the longest
// request so far, and the first request that needs pinned memory takes it.
//
// A request is cut into transfers. Direct ones go to the storage first and need no CPU. Cached ones
// follow one at a time; each is a copy on this thread. If the storage cannot move bytes between the
// file and their place, they pass through staging: after the storage in a read, before it in a
// write. Cached ends of a write wait until its direct middle is done (planner.h says why).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bounded.h"
#include "storage/storage.h"
#include "transfer/active_request.h"
#include "transfer/cost_observer.h"
#include "transfer/direct_traffic.h"
#include "transfer/request.h"
#include "transfer/request_planner.h"
#include "transfer/small_transfers.h"
#include "transfer/staged_copies.h"

namespace penstock::transfer {

class Executor {
public:
    struct Limits {
        uint32_t depth = 16;    // storage operations in flight
        uint32_t requests = 4;  // requests in progress
    };

    // Makes an executor. `device` serves requests in device memory that the host cannot address;
    // null: there are no such requests. `storage` and `device` must outlive it.
    static Result<std::unique_ptr<Executor>> create(storage::Storage& storage,
                                                    backend::Device* device, const Limits& limits);
    // Requires that all requests have been reaped.
    ~Executor();
    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;

    // Takes the pinned memory now, so that a measurement does not include it.
    Status prepare() { return staging_->prepare(); }

    // Takes a request, plans it, and starts its direct transfers. Returns false if there is no
    // room; the caller must reap first.
    [[nodiscard]] bool submit(const Request& request);
    // Continues the work, stores at most out.size() outcomes, and returns how many. With `wait`,
    // blocks until there is at least one, unless nothing is outstanding.
    [[nodiscard]] size_t reap(std::span<Outcome> out, bool wait);
    [[nodiscard]] size_t outstanding() const { return in_work_ + finished_.size(); }
    [[nodiscard]] bool has_room() const { return outstanding() < limits_.requests; }
    // Returns whether some transfers taken have not started. A thread that shares work with others
    // takes no more until they have.
    [[nodiscard]] bool has_unstarted() const { return !unstarted_.empty(); }
    // Returns whether some of those are copies, which this thread must make.
    [[nodiscard]] bool has_copies() const;

    // Makes one read or write that is small (RoutePolicy), at the least cost. Requires that nothing
    // else is outstanding.
    [[nodiscard]] SmallOutcome move_small(Source& source, uint64_t offset, const iovec& memory,
                                          bool write, const ReadOptions& options) {
        return write ? small_.write(source, offset, memory, options)
                     : small_.read(source, offset, memory, options);
    }
    // Writes the pieces to the end of a file that appends, in one operation: their bytes lie
    // together there. Copies what the host cannot address to host memory first. Requires that
    // nothing else is outstanding.
    [[nodiscard]] SmallOutcome append(Source& source, std::span<const iovec> from,
                                      bool device_memory, const ReadOptions& options);

private:
    Executor(std::unique_ptr<storage::Queue> queue, std::unique_ptr<Staging> staging,
             const Limits& limits);

    bool start_transfers(bool copies);
    bool start_next(ActiveRequest& active, bool direct);
    bool start(ActiveRequest& active, size_t first, size_t count);
    void put_into_batch(ActiveOperation& operation);
    bool put_fetched_into_batch(bool copies);
    void settle(const storage::Completion& completion);
    void collect_copies(bool wait);
    void arrive(ActiveOperation& operation);
    void end(ActiveOperation& operation);
    void finish_if_done(ActiveRequest& active);

    const Limits limits_;
    const std::unique_ptr<storage::Queue> queue_;
    const std::unique_ptr<Staging> staging_;
    StagedCopies copies_;
    SmallTransfers small_;
    RequestPlanner planner_;
    CostObserver observer_;
    DirectReaders readers_;
    std::vector<ActiveRequest> requests_;
    std::vector<ActiveRequest*> free_requests_;
    std::vector<ActiveRequest*> unstarted_;  // with transfers not started; oldest first
    std::vector<ActiveOperation> operations_;
    std::vector<ActiveOperation*> free_operations_;
    std::vector<ActiveOperation*> fetched_;  // writes whose bytes have arrived in staging
    std::vector<storage::Operation> batch_;
    std::vector<storage::Completion> completions_;
    size_t in_work_ = 0;
    bool lacks_staging_ = false;  // something could not start for lack of staging
    base::BoundedQueue<Outcome> finished_;
};

}  // namespace penstock::transfer
