#include "transfer/executor.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace penstock::transfer {

using planner::Transfer;

Result<std::unique_ptr<Executor>> Executor::create(storage::Storage& storage,
                                                   backend::Device* device, const Limits& limits) {
    auto queue = storage.make_queue(limits.depth);
    if (!queue.ok()) return queue.status();
    auto staging = Staging::create(device, limits.depth);
    if (!staging.ok()) return staging.status();
    return std::unique_ptr<Executor>(
        new Executor(std::move(queue.value()), std::move(staging.value()), limits));
}

Executor::Executor(std::unique_ptr<storage::Queue> queue, std::unique_ptr<Staging> staging,
                   const Limits& limits)
    : limits_(limits),
      queue_(std::move(queue)),
      staging_(std::move(staging)),
      copies_(*staging_, limits.depth),
      small_(*queue_, *staging_),
      planner_(limits.depth),
      readers_(limits.requests),
      requests_(limits.requests),
      operations_(limits.depth),
      completions_(limits.depth),
      finished_(limits.requests) {
    for (ActiveRequest& active : requests_) free_requests_.push_back(&active);
    for (ActiveOperation& operation : operations_) free_operations_.push_back(&operation);
    unstarted_.reserve(limits.requests);
    batch_.reserve(limits.depth);
    fetched_.reserve(limits.depth);
}

Executor::~Executor() { PENSTOCK_CHECK(in_work_ == 0, "an executor goes with requests under way"); }

bool Executor::submit(const Request& request) {
    PENSTOCK_CHECK(request.size <= kRequestSizeMax, "a request is at most a window");
    if (!has_room()) return false;
    ActiveRequest& active = *free_requests_.back();
    free_requests_.pop_back();
    ++in_work_;
    active.begin(request);
    planner_.plan(&active);
    if (active.all_started()) {
        finish_if_done(active);  // the request is empty or refused
    } else {
        unstarted_.push_back(&active);
        (void)start_transfers(false);
    }
    return true;
}

SmallOutcome Executor::append(Source& source, std::span<const iovec> from, bool device_memory,
                              const ReadOptions& options) {
    if (!device_memory) return small_.append(source, from, options);
    iovec whole{};
    for (const iovec& piece : from) whole.iov_len += piece.iov_len;
    const std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[whole.iov_len]);
    SmallOutcome failed;
    if (memory == nullptr) {
        failed.completion.error = ENOMEM;
        return failed;
    }
    if (!staging_->copy_to_host(from, memory.get()).ok()) {
        failed.completion.error = EIO;
        return failed;
    }
    whole.iov_base = memory.get();
    return small_.append(source, {&whole, 1}, options);
}

bool Executor::has_copies() const {
    return std::any_of(unstarted_.begin(), unstarted_.end(),
                       [](const ActiveRequest* active) { return active->has_copies(); });
}

// Submits what can start now: direct transfers of all requests and, with `copies`, one cached one
// behind them. Returns false if nothing could start or be fetched.
bool Executor::start_transfers(bool copies) {
    batch_.clear();
    lacks_staging_ = false;
    bool fetching = false;
    for (ActiveRequest* active : unstarted_) {
        while (start_next(*active, true) || (active->fetches() && start_next(*active, false)))
            fetching = fetching || active->fetches();
    }
    if (put_fetched_into_batch(copies)) copies = false;
    for (ActiveRequest* active : unstarted_) {
        if (!copies || (!active->fetches() && start_next(*active, false))) break;
    }
    std::erase_if(unstarted_, [](const ActiveRequest* active) { return active->all_started(); });
    const ActiveOperation* const lone = batch_.size() == 1 ? &operations_[batch_[0].cookie]
                                                           : nullptr;
    observer_.begin_submission(lone);
    if (batch_.empty()) return fetching;
    const size_t taken = queue_->submit(batch_);
    observer_.end_submission();
    PENSTOCK_CHECK(taken == batch_.size(), "a queue takes as many operations as its depth");
    return true;
}

// Starts the next direct transfer of a request, or its next cached ones. Returns false if there is
// none or no room for it.
bool Executor::start_next(ActiveRequest& active, bool direct) {
    const std::vector<Transfer>& transfers = active.transfers;
    size_t& next = direct ? active.next_direct : active.next_cached;
    while (next < transfers.size() && (transfers[next].route != Route::kCached) != direct) ++next;
    if (free_operations_.empty()) return false;
    // The last free operation is for a copy. Otherwise this thread would wait behind a queue full
    // of direct transfers until one of them ends.
    if (direct && free_operations_.size() == 1 && has_copies()) return false;
    if (!direct && !active.may_copy()) return false;
    if (!direct && !active.again.empty()) {
        if (!start(active, active.again.back(), 1)) return false;
        active.again.pop_back();
        return true;
    }
    if (next == transfers.size()) return false;
    size_t count = 1;
    if (direct) {
        if (!active.request.write &&
            !readers_.may_start(active.traffic(), transfers[next].moved.size))
            return false;
    } else {
        // The device is idle until the first call has ended.
        const bool short_call = active.request.device_memory &&
                                active.request.staged_part == nullptr && !copies_.copying();
        count = active.joinable(next, short_call ? kFirstStagedSizeMax : active.call_size_max);
    }
    if (!start(active, next, count)) return false;
    next += count;
    active.started += count;
    if (!direct) active.cached_left -= count;
    return true;
}

// Makes one operation for `count` transfers from `first` on. Returns false if it must wait for
// staging.
bool Executor::start(ActiveRequest& active, size_t first, size_t count) {
    ActiveOperation& operation = *free_operations_.back();
    const Transfer& front = active.transfers[first];
    const Transfer& back = active.transfers[first + count - 1];
    operation.active = &active;
    operation.first = first;
    operation.count = count;
    operation.range = {front.range.offset, back.range.end() - front.range.offset};
    operation.moved = {front.moved.offset, back.moved.end() - front.moved.offset};
    if (!copies_.place(&operation)) {
        lacks_staging_ = true;
        return false;
    }
    free_operations_.pop_back();
    ++active.running;
    ++active.operations;
    if (active.request.report != nullptr) ++active.request.report->transfers;
    if (active.fetches()) {
        copies_.fetch(&operation);
    } else {
        if (active.request.write && operation.staging >= 0) copies_.gather(operation);
        put_into_batch(operation);
    }
    return true;
}

void Executor::put_into_batch(ActiveOperation& operation) {
    ActiveRequest& active = *operation.active;
    const Transfer& front = operation.front();
    storage::Operation move{active.request.source->file.get(), operation.moved.offset,
                            operation.pieces,
                            static_cast<uint64_t>(&operation - operations_.data())};
    move.route = front.route;
    move.drop = active.policy.leaves_nothing(front.reason);
    move.must_drop = active.policy.must_drop(front.reason);
    move.write = active.request.write;
    batch_.push_back(move);
    if (move.route == Route::kCached) {
        readers_.count_cached();
        observer_.begin_cached();
    } else if (!move.write) {
        readers_.start(active.traffic());
        if (Report* report = active.request.report; report != nullptr)
            report->direct_depth = std::max<uint64_t>(report->direct_depth,
                                                      active.traffic().in_flight());
        if (active.direct_begin_ns == 0) active.direct_begin_ns = base::monotonic_ns();
    }
}

// Puts all direct transfers whose bytes have arrived in staging into the batch and, with `copies`,
// one cached one. Returns whether there was a cached one.
bool Executor::put_fetched_into_batch(bool copies) {
    bool copied = false;
    std::erase_if(fetched_, [&](ActiveOperation* operation) {
        if (const int error = operation->active->error; error != 0) {  // begin nothing more
            operation->error = error;
            arrive(*operation);
            return true;
        }
        const bool copy = operation->front().route == Route::kCached;
        if (copy && (!copies || copied)) return false;
        copied = copied || copy;
        put_into_batch(*operation);
        return true;
    });
    return copied;
}

size_t Executor::reap(std::span<Outcome> out, bool wait) {
    for (;;) {
        const bool started = start_transfers(true);
        const bool idle = !started && finished_.empty();
        // Without staging nothing can start before something has ended.
        const bool waits = idle && (wait || lacks_staging_);
        const size_t count = queue_->reap(completions_,
                                          waits && in_work_ > 0 && !copies_.copying());
        for (size_t i = 0; i < count; ++i) settle(completions_[i]);
        observer_.catch_up();
        if (count > 0) readers_.tell();
        collect_copies(waits && count == 0);
        size_t stored = 0;
        for (; stored < out.size() && !finished_.empty(); ++stored) out[stored] = finished_.pop();
        if (stored > 0 || in_work_ == 0) return stored;
        if (!wait && !started && count == 0) return 0;
    }
}

// Handles the storage's completion of one operation.
void Executor::settle(const storage::Completion& completion) {
    ActiveOperation& operation = operations_[completion.cookie];
    ActiveRequest& active = *operation.active;
    const Request& request = active.request;
    const bool cached = operation.front().route == Route::kCached;
    const bool all_started = active.all_started();
    if (!cached && !request.write) readers_.end(active.traffic(), completion.bytes);
    observer_.observe_call(operation, completion.bytes);
    if (completion.error != 0 && !cached && request.source->refuses_direct(completion.error)) {
        if (active.policy.required().has_value()) {
            operation.good = 0;
            operation.error = EOPNOTSUPP;
            return arrive(operation);
        }
        active.retry_cached(operation);
        if (all_started) unstarted_.push_back(&active);
        return end(operation);
    }
    const uint64_t skipped = operation.range.offset - operation.moved.offset;
    operation.good = std::min(completion.bytes - std::min(completion.bytes, skipped),
                              operation.range.size);
    operation.error = operation.good < operation.range.size ? completion.error : 0;
    if (operation.error != 0 && cached && !request.write) {
        active.read_behind_error(&operation);
        if (all_started && !active.all_started()) unstarted_.push_back(&active);
    }
    if (!request.write && operation.staging >= 0 && operation.good > 0) {
        if (request.device_memory) return copies_.send(&operation, skipped);
        copies_.scatter(operation, skipped);
    }
    arrive(operation);
}

void Executor::collect_copies(bool wait) {
    for (ActiveOperation* operation : copies_.collect(wait)) {
        if (operation->active->fetches() && operation->error == 0) {
            fetched_.push_back(operation);
        } else {
            arrive(*operation);
        }
    }
}

// Ends an operation: its bytes have arrived, or the reason is known why not.
void Executor::arrive(ActiveOperation& operation) {
    ActiveRequest& active = *operation.active;
    const Route route = operation.front().route;
    if (operation.good < operation.range.size) {
        active.stop_at(operation.range.offset + operation.good, operation.error, route);
        if (active.request.write) {
            active.give_up();
            std::erase(unstarted_, &active);
        }
    }
    if (route != Route::kCached) --active.direct_left;
    active.count_arrived(operation);
    end(operation);
}

void Executor::end(ActiveOperation& operation) {
    copies_.release(&operation);
    free_operations_.push_back(&operation);
    --operation.active->running;
    finish_if_done(*operation.active);
}

void Executor::finish_if_done(ActiveRequest& active) {
    if (active.running > 0 || !active.all_started()) return;
    observer_.observe_direct(active);
    if (active.sent_ns != 0) active.request.report->copy_ns = base::monotonic_ns() - active.sent_ns;
    finished_.push(active.outcome());
    free_requests_.push_back(&active);
    --in_work_;
}

}  // namespace penstock::transfer
