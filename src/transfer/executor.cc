#include "transfer/executor.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/units.h"
#include "base/waits.h"
#include "transfer/executor_slot.h"

namespace penstock::transfer {

using extent::Extent;
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
      slots_(limits.requests),
      operations_(limits.depth),
      completions_(limits.depth),
      runs_(kRequestSizeMax / kPageSize + 2),
      finished_(limits.requests) {
    for (uint32_t i = 0; i < limits.depth; ++i) free_operations_.push_back(i);
    for (Slot& slot : slots_) free_slots_.push_back(&slot);
    unstarted_.reserve(limits.requests);
    lanes_.reserve(limits.requests);
    batch_.reserve(limits.depth);
    copied_.reserve(limits.depth);
    copying_.resize(limits.depth);
    fetched_.reserve(limits.depth);
}

Executor::~Executor() { PENSTOCK_CHECK(in_work_ == 0, "an executor goes with requests under way"); }

bool Executor::submit(const Request& request) {
    PENSTOCK_CHECK(request.size <= kRequestSizeMax, "a request is at most a window");
    if (!has_room()) return false;
    Slot& slot = *free_slots_.back();
    free_slots_.pop_back();
    slot.request = request;
    slot.transfers.clear();
    slot.again.clear();
    slot.runs.clear();
    slot.next_direct = slot.next_cached = slot.started = slot.running = 0;
    slot.operations = 0;
    slot.direct_begin_ns = slot.sent_ns = 0;
    slot.beside_copies = 0;
    slot.stop = kNowhere;
    slot.error = 0;
    ++in_work_;
    if (request.write) {
        plan_write(slot);
    } else {
        plan(slot);
    }
    slot.planned = slot.transfers.size();
    slot.cached_left = static_cast<size_t>(
        std::count_if(slot.transfers.begin(), slot.transfers.end(),
                      [](const Transfer& transfer) { return transfer.route == Route::kCached; }));
    slot.direct_left = slot.planned - slot.cached_left;
    if (slot.all_started()) {
        finish_if_done(slot);  // the request is empty or refused
    } else {
        unstarted_.push_back(&slot);
        (void)pump(false);
    }
    return true;
}

bool Executor::has_copies() const {
    return std::any_of(unstarted_.begin(), unstarted_.end(), [](const Slot* slot) {
        return slot->may_copy() && (slot->cached_left > 0 || !slot->again.empty());
    });
}

// Records that the bytes from `offset` on did not arrive: because of `error`, or at the end of the
// file if it is 0.
void Executor::stop_at(Slot& slot, uint64_t offset, int error, Route route) {
    // At equal offsets an error takes precedence over end of file.
    if (offset < slot.stop || (offset == slot.stop && slot.error == 0)) {
        slot.stop = offset;
        slot.error = error;
    }
    Report* report = slot.request.report;
    if (report == nullptr || error == 0) return;
    if (report->error_number != 0 && report->error_offset <= offset) return;
    report->error_number = error;
    report->error_offset = offset;
    report->error_route = route;
}

// Fills batch_ with what can start now and submits it: direct transfers of all requests and, with
// `copies`, one cached one behind them. Returns false if nothing could start or be fetched.
bool Executor::pump(bool copies) {
    batch_.clear();
    lacks_staging_ = false;
    bool fetching = false;
    for (Slot* slot : unstarted_) {
        while (prepare(*slot, true) || (slot->fetches() && prepare(*slot, false)))
            fetching = fetching || slot->fetches();
    }
    if (put_fetched_into_batch(copies)) copies = false;
    for (Slot* slot : unstarted_) {
        if (!copies || (!slot->fetches() && prepare(*slot, false))) break;
    }
    std::erase_if(unstarted_, [](const Slot* slot) { return slot->all_started(); });
    call_ns_ = 0;
    if (batch_.empty()) return fetching;
    const bool timed = batch_.size() == 1 && operations_[batch_[0].cookie].is_timed_call();
    if (timed) (void)base::waited_since_asked();  // so that the next answer is about this call
    const uint64_t begin_ns = timed ? base::monotonic_ns() : 0;
    const size_t taken = queue_->submit(batch_);
    if (timed) {
        call_ns_ = base::monotonic_ns() - begin_ns;
        call_index_ = batch_[0].cookie;
    }
    PENSTOCK_CHECK(taken == batch_.size(), "a queue takes as many operations as its depth");
    return true;
}

// Puts the next direct transfer of `slot`, or its next cached ones, into batch_. Returns false if
// there is none or no room for it.
bool Executor::prepare(Slot& slot, bool direct) {
    const std::vector<Transfer>& transfers = slot.transfers;
    size_t& next = direct ? slot.next_direct : slot.next_cached;
    while (next < transfers.size() && (transfers[next].route != Route::kCached) != direct) ++next;
    if (free_operations_.empty()) return false;
    // The last free operation is for a copy. Otherwise this thread would wait behind a queue full
    // of direct transfers until one of them ends.
    if (direct && free_operations_.size() == 1 && has_copies()) return false;
    if (!direct && !slot.may_copy()) return false;
    if (!direct && !slot.again.empty()) {
        if (!enlist(slot, slot.again.back(), 1)) return false;
        slot.again.pop_back();
        return true;
    }
    if (next == transfers.size()) return false;
    size_t count = 1;
    if (direct) {
        if (!slot.request.write && !may_start(slot, transfers[next].moved.size)) return false;
    } else {
        const Extent& first = transfers[next].range;
        // The device is idle until the first call has ended.
        const bool short_call = slot.request.device_memory && slot.request.staged_part == nullptr &&
                                !staging_->copying();
        const uint64_t size_max = short_call ? kFirstStagedSizeMax : slot.call_size_max;
        while (next + count < transfers.size()) {
            const Transfer& more = transfers[next + count];
            if (more.route != Route::kCached || slot.drops(more) != slot.drops(transfers[next]) ||
                slot.leaves_nothing(more) != slot.leaves_nothing(transfers[next]) ||
                more.range.end() - first.offset > size_max ||
                more.range.offset != transfers[next + count - 1].range.end())
                break;
            ++count;
        }
    }
    if (!enlist(slot, next, count)) return false;
    next += count;
    slot.started += count;
    if (!direct) slot.cached_left -= count;
    return true;
}

// Counts the start of a direct operation of `slot`.
void Executor::count_direct(Slot& slot) {
    DirectTraffic& traffic = slot.request.source->costs->traffic();
    traffic.start(&lane_of(slot).reader);
    if (Report* report = slot.request.report; report != nullptr)
        report->direct_depth = std::max<uint64_t>(report->direct_depth, traffic.in_flight());
    if (slot.direct_begin_ns != 0) return;
    slot.direct_begin_ns = base::monotonic_ns();
}

bool Executor::may_start(const Slot& slot, uint64_t size) const {
    const Costs* const costs = slot.request.source->costs.get();
    for (const Lane& lane : lanes_) {
        if (lane.costs == costs) return lane.costs->traffic().may_start(lane.reader, size);
    }
    return true;
}

Executor::Lane& Executor::lane_of(const Slot& slot) {
    Costs* const costs = slot.request.source->costs.get();
    for (Lane& lane : lanes_) {
        if (lane.costs == costs) return lane;
    }
    return lanes_.emplace_back(Lane{costs, {}, cached_calls_});
}

// Reports the operations that were found to have ended at the same time.
void Executor::tell_lanes() {
    for (Lane& lane : lanes_) {
        if (lane.reader.ended == 0) continue;
        lane.costs->traffic().tell(&lane.reader, lane.cached_calls != cached_calls_);
        lane.cached_calls = cached_calls_;
    }
    std::erase_if(lanes_, [](const Lane& lane) { return lane.reader.in_flight == 0; });
}

size_t Executor::reap(std::span<Outcome> out, bool wait) {
    for (;;) {
        const bool started = pump(true);
        const bool idle = !started && finished_.empty();
        // Without staging nothing can start before something has ended.
        const bool waits = idle && (wait || lacks_staging_);
        const size_t count = queue_->reap(completions_,
                                          waits && in_work_ > 0 && !staging_->copying());
        for (size_t i = 0; i < count; ++i) settle(completions_[i]);
        caught_up_ = true;
        if (count > 0) tell_lanes();
        collect_copies(waits && count == 0);
        size_t stored = 0;
        for (; stored < out.size() && !finished_.empty(); ++stored) out[stored] = finished_.pop();
        if (stored > 0 || in_work_ == 0) return stored;
        if (!wait && !started && count == 0) return 0;
    }
}

// Handles the storage's completion of one operation.
void Executor::settle(const storage::Completion& completion) {
    Operation& operation = operations_[completion.cookie];
    Slot& slot = *operation.slot;
    Transfer& front = operation.front();
    const bool write = slot.request.write;
    if (front.route != Route::kCached && !write)
        slot.request.source->costs->traffic().end(&lane_of(slot).reader, completion.bytes);
    if (call_ns_ != 0 && completion.cookie == call_index_)
        observe_cached(operation, completion.bytes);
    if (completion.error != 0 && front.route != Route::kCached &&
        slot.request.source->refuses_direct(completion.error)) {
        const bool insists = slot.request.options.strict && asked_route(slot.request.options);
        if (!insists) return go_again(operation);
        operation.good = 0;
        operation.error = EOPNOTSUPP;
        return arrive(operation);
    }
    const uint64_t skipped = operation.range.offset - operation.moved.offset;
    const uint64_t good = std::min(completion.bytes - std::min(completion.bytes, skipped),
                                   operation.range.size);
    operation.good = good;
    operation.error = good < operation.range.size ? completion.error : 0;
    if (operation.error != 0 && front.route == Route::kCached && !write)
        read_behind_error(operation);
    if (write || operation.staging < 0 || good == 0) return arrive(operation);
    const size_t from = operation.moved.offset % kPageSize + skipped;
    if (slot.request.device_memory) return send(operation, from);
    const std::byte* bytes = staging_->memory(operation.staging) + from;
    uint64_t at = slot.request.offset;
    for (const iovec& piece : slot.request.pieces) {
        const Extent part = extent::intersect({at, piece.iov_len}, {operation.range.offset, good});
        if (!part.empty()) {
            std::memcpy(static_cast<std::byte*>(piece.iov_base) + (part.offset - at),
                        bytes + (part.offset - operation.range.offset), part.size);
        }
        at += piece.iov_len;
    }
    arrive(operation);
}

// Moves the bytes of a refused direct operation to the page cache route.
void Executor::go_again(Operation& operation) {
    Slot& slot = *operation.slot;
    Transfer& front = operation.front();
    front.route = Route::kCached;
    front.reason = RouteReason::kRefused;
    front.moved = front.range;
    front.swallowed_size = 0;
    --slot.direct_left;
    if (slot.all_started()) unstarted_.push_back(&slot);
    if (operation.first < slot.next_cached) {
        slot.again.push_back(operation.first);
    } else {  // the search for cached transfers finds it
        --slot.started;
        ++slot.cached_left;
    }
    end_operation(operation);
}

// Handles a long call that one bad page ended. The bytes behind the page are read once more, so
// that only the page is missing. This is done once only, because the storage may take seconds to
// give up on each bad page.
void Executor::read_behind_error(Operation& operation) {
    Slot& slot = *operation.slot;
    const bool of_bytes = operation.error == EIO || operation.error == ENODATA ||
                          operation.error == EBADMSG || operation.error == EILSEQ;
    const uint64_t bad = operation.range.offset + operation.good;
    const uint64_t behind = base::align_down(bad, kPageSize) + kPageSize;
    if (!of_bytes || operation.first >= slot.planned || behind >= operation.range.end()) return;
    const Extent rest{behind, operation.range.end() - behind};
    if (slot.all_started()) unstarted_.push_back(&slot);
    for (size_t i = operation.first; i < operation.first + operation.count; ++i) {
        Transfer part = slot.transfers[i];
        part.range = part.moved = intersect(part.range, rest);
        if (part.range.empty()) continue;
        slot.transfers.push_back(part);
        ++slot.cached_left;
    }
    operation.range.size = operation.moved.size = behind - operation.range.offset;
}

// Submits a copy from staging to the device, behind the copies in flight.
void Executor::send(Operation& operation, size_t from) {
    const Request& request = operation.slot->request;
    auto* to = static_cast<std::byte*>(request.pieces.front().iov_base) +
               (operation.range.offset - request.offset);
    if (request.report != nullptr) operation.slot->sent_ns = base::monotonic_ns();
    const backend::CopyPart part{to, staging_->memory(operation.staging) + from, operation.good};
    if (!staging_->copy_out({&part, 1}, {&operation.staging, 1}).ok()) {
        operation.good = 0;
        operation.error = EIO;
    }
    copying_[static_cast<size_t>(operation.staging)] = &operation;
}

void Executor::collect_copies(bool wait) {
    if (!staging_->copying()) return;
    copied_.clear();
    Status status = staging_->close_batch();
    if (status.ok()) status = staging_->finished(&copied_, wait);
    if (!status.ok()) staging_->abandon(&copied_);
    for (const int32_t slot : copied_) {
        Operation& operation = *copying_[static_cast<size_t>(slot)];
        if (!status.ok()) {
            operation.good = 0;
            operation.error = EIO;
        }
        if (operation.slot->request.write) {
            end_fetch(operation);
        } else {
            arrive(operation);
        }
    }
}

// Ends an operation: its bytes have arrived, or the reason is known why not.
void Executor::arrive(Operation& operation) {
    Slot& slot = *operation.slot;
    if (operation.good < operation.range.size) {
        stop_at(slot, operation.range.offset + operation.good, operation.error,
                operation.front().route);
        if (slot.request.write) give_up(slot);
    }
    if (operation.front().route != Route::kCached) --slot.direct_left;
    StagedPart* const staged_part = operation.fills_staged_part() ? slot.request.staged_part
                                                                  : nullptr;
    if (staged_part != nullptr && operation.good > 0)
        staged_part->extents.push_back({operation.range.offset, operation.good});
    if (slot.request.report != nullptr) {
        Report* const report = staged_part != nullptr ? &staged_part->report : slot.request.report;
        for (size_t i = 0; i < operation.count; ++i) {
            const Transfer& transfer = slot.transfers[operation.first + i];
            const uint64_t bytes = extent::intersect(transfer.range,
                                                     {operation.range.offset, operation.good})
                                       .size;
            report->bytes += bytes;
            report->route_bytes[static_cast<size_t>(transfer.route)] += bytes;
            slot.count_reasons(transfer, {transfer.range.offset, bytes}, report);
        }
        slot.count_residency({operation.range.offset, operation.good}, report);
    }
    end_operation(operation);
}

void Executor::end_operation(Operation& operation) {
    Slot& slot = *operation.slot;
    if (operation.staging >= 0) staging_->give_back(operation.staging);
    staged_size_ -= operation.staged_size;
    free_operations_.push_back(static_cast<uint32_t>(&operation - operations_.data()));
    --slot.running;
    finish_if_done(slot);
}

void Executor::finish_if_done(Slot& slot) {
    if (slot.running > 0 || !slot.all_started()) return;
    if (slot.direct_begin_ns != 0) observe_direct(slot);
    const Request& request = slot.request;
    if (slot.sent_ns != 0) request.report->copy_ns = base::monotonic_ns() - slot.sent_ns;
    Outcome outcome{request.cookie, request.size, 0, slot.operations};
    if (slot.stop != kNowhere) {
        outcome.bytes = slot.stop - request.offset;
        outcome.error = slot.error;
    }
    finished_.push(outcome);
    free_slots_.push_back(&slot);
    --in_work_;
}

// Records the time of the direct transfers of a request, from the first to the last, without the
// time that an earlier request's transfers took. Records nothing if a cached call kept this thread
// from noticing the last completion.
void Executor::observe_direct(const Slot& slot) {
    const uint64_t now_ns = base::monotonic_ns();
    const bool queued = slot.direct_begin_ns < direct_end_ns_;
    const uint64_t begin_ns = queued ? direct_end_ns_ : slot.direct_begin_ns;
    direct_end_ns_ = now_ns;
    const bool begin_seen = !queued || direct_end_seen_;
    direct_end_seen_ = caught_up_;
    if (slot.stop != kNowhere || !begin_seen || !direct_end_seen_) return;
    planner::Observation seen{planner::Sample::Kind::kDirect, 0, 0,
                              static_cast<double>(now_ns - begin_ns), slot.beside_copies};
    for (const Transfer& transfer : slot.transfers) {
        if (transfer.route == Route::kCached) continue;
        ++seen.count;
        seen.size += transfer.moved.size;
    }
    Costs& costs = *slot.request.source->costs;
    if (costs.traffic().trying()) return;                  // the depth on trial may not stay
    if (queued) seen.ns += costs.model().direct_start_ns;  // hidden by the request before
    costs.refine(seen);
}

// The completion came with the call, so the submission time is the time of the call.
void Executor::observe_cached(const Operation& operation, uint64_t bytes) {
    if (bytes != operation.moved.size) return;
    Source& source = *operation.slot->request.source;
    const auto ns = static_cast<double>(std::exchange(call_ns_, 0));
    if (operation.front().reason == RouteReason::kTimed) {
        const planner::CostModel model = source.costs->model();
        const double copy_ns = model.cached_ns +
                               static_cast<double>(bytes) * model.cached_ns_per_byte;
        if (!source.hot()) return source.trial.record_unknown(ns, copy_ns);
        if (RouteTrial::is_slower_than_copy(ns, copy_ns)) {
            if (base::waited_since_asked()) source.record_residency(false);
            return;
        }
    }
    source.costs->refine({planner::Sample::Kind::kCached, 1, bytes, ns});
}

}  // namespace penstock::transfer
