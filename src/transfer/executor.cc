#include "transfer/executor.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/units.h"

namespace penstock::transfer {
namespace {

using extent::Extent;
using planner::Transfer;

// Of one cached read: small enough that direct transfers are looked after in between, or that a
// slot of staging holds it; where there is neither, long calls are cheaper.
constexpr uint64_t kCallSizeMax = 1 << 20, kLoneCallSizeMax = 4 << 20;
static_assert(kCallSizeMax <= Staging::kSlotSize);
// What is told of residency, and so what a plan can go round: a cached piece within missing ones
// that is shorter than this costs less to pass over than to find.
constexpr uint64_t kGrainSize = 64 << 10;
static_assert(kRequestSizeMax <= planner::kRequestSizeMax);
constexpr uint64_t kPageSize = 4096;  // the least that the OS page cache may hold
constexpr uint64_t kNowhere = UINT64_MAX;

// Too little to be planned, and nobody asked for more.
bool is_plain(const Request& request) {
    const ReadOptions& options = request.options;
    return request.size < kPlanSizeMin && request.size > 0 && !options.route.has_value() &&
           (options.cache == CachePolicy::kAuto || options.cache == CachePolicy::kDrop);
}

}  // namespace

// A request in work.
struct Executor::Slot {
    Request request;
    std::vector<Transfer> transfers;          // none longer than an operation; by offset
    size_t next_direct = 0, next_cached = 0;  // where to look for the next of a kind
    size_t started = 0;                       // how many have been
    uint64_t call_size_max = kCallSizeMax;    // of a cached read
    std::vector<size_t> again;  // transfers that were refused and go through the page cache
    size_t running = 0;
    uint32_t operations = 0;
    uint64_t direct_begin_ns = 0;  // when its first direct transfer started; 0: none has
    uint64_t cached_calls = 0;     // of the executor, by then
    uint64_t stop = kNowhere;      // the first byte that did not arrive
    int error = 0;                 // why; 0: the file ends there

    [[nodiscard]] bool drops(const Transfer& transfer) const {
        return request.options.cache == CachePolicy::kDrop &&
               transfer.reason != RouteReason::kResident && transfer.reason != RouteReason::kDirty;
    }
    [[nodiscard]] bool all_started() const { return started == transfers.size() && again.empty(); }
};

// A storage operation: one direct transfer, or neighbouring cached ones.
struct Executor::Operation {
    Slot* slot = nullptr;
    size_t first = 0, count = 0;  // of slot->transfers
    Extent range, moved;
    int32_t staging = -1;  // its slot; -1: straight to its place
    uint64_t good = 0;     // bytes of `range` that arrived, and
    int error = 0;         // why not all; 0: the end of the file
    std::vector<iovec> pieces;

    [[nodiscard]] Transfer& front() const { return slot->transfers[first]; }
    // Long enough for what it takes to be worth two looks at the clock.
    [[nodiscard]] bool is_resident_call() const {
        return count == 1 && front().reason == RouteReason::kResident && range.size >= kGrainSize;
    }
};

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
    batch_.reserve(limits.depth);
    copied_.reserve(limits.depth);
    copying_.resize(limits.depth);
}

Executor::~Executor() { PENSTOCK_CHECK(in_work_ == 0, "an executor goes with reads under way"); }

bool Executor::submit(const Request& request) {
    PENSTOCK_CHECK(request.size <= kRequestSizeMax, "a request is at most a window");
    if (!has_room()) return false;
    Slot& slot = *free_slots_.back();
    free_slots_.pop_back();
    slot.request = request;
    slot.transfers.clear();
    slot.again.clear();
    slot.next_direct = slot.next_cached = slot.started = slot.running = 0;
    slot.operations = 0;
    slot.direct_begin_ns = 0;
    slot.stop = kNowhere;
    slot.error = 0;
    ++in_work_;
    plan(slot);
    if (slot.all_started()) {
        finish_if_done(slot);  // empty, or refused
    } else {
        unstarted_.push_back(&slot);
        (void)pump(false);
    }
    return true;
}

void Executor::look_at_residency(Slot& slot, const planner::CostModel& model) {
    const Request& request = slot.request;
    const uint64_t file_size = request.source->file->size();
    run_count_ = 0;
    if (request.offset >= file_size || request.source->probe.in_memory()) return;
    storage::ResidencyQuestion question;
    question.range = {request.offset, std::min(request.size, file_size - request.offset)};
    question.grain = kGrainSize;
    question.probes_max = static_cast<uint32_t>(2 * (request.size / kGrainSize + 2));
    run_count_ = request.source->probe.ask(question, runs_).runs;
    request.source->hot.store(run_count_ == 1 && runs_[0].state == Residency::kCached,
                              std::memory_order_relaxed);
    for (extent::ResidencyRun& run : std::span(runs_).first(run_count_)) {
        if (request.report != nullptr) {
            request.report->residency_bytes[static_cast<size_t>(run.state)] += run.range.size;
        }
        if (run.state != Residency::kMixed) continue;
        // Plans know pages that are there and pages that are not. The missing ones of a mixed run
        // come by small reads, one a grain at least, or all of it by a direct one.
        const double grains = std::ceil(static_cast<double>(run.range.size) / kGrainSize);
        const double missing = static_cast<double>(run.range.size - run.resident_size);
        const double direct_ns = static_cast<double>(run.range.size) * model.direct_ns_per_byte;
        const double buffered_ns = missing * model.buffered_ns_per_byte +
                                   grains * model.buffered_ns;
        run.state = direct_ns < buffered_ns ? Residency::kMissing : Residency::kCached;
    }
}

Result<planner::Plan> Executor::make_plan(Slot& slot) {
    const Request& request = slot.request;
    Source& source = *request.source;
    const storage::DirectAlignment alignment = source.file->direct_alignment();
    planner::CostModel model = source.costs->model();
    model.transfer_size_max = std::min<uint64_t>(model.transfer_size_max, Staging::kSlotSize);
    planner::Request wanted;
    // What lies behind the end is left to cut(): a direct transfer over it would write zeros there.
    const uint64_t file_size = std::max(source.file->size(), request.offset);
    wanted.range = {request.offset, std::min(request.size, file_size - request.offset)};
    wanted.direct.offset_alignment = alignment.offset;
    wanted.direct.memory_alignment = alignment.memory;
    // What does not fit where it is to go passes through staging.
    wanted.memory = request.offset;
    wanted.room_before = wanted.room_behind = Staging::kMarginSize;
    const bool direct_asked = request.options.route.has_value()
                                  ? request.options.route != Route::kCached
                                  : request.options.cache == CachePolicy::kBypass;
    run_count_ = 0;
    if (request.options.route == Route::kCached) {
        wanted.cached_because = RouteReason::kAsked;
    } else if (alignment.offset == 0) {
        // The planner says so.
    } else if (source.direct_refused.load(std::memory_order_relaxed)) {
        wanted.cached_because = RouteReason::kRefused;
    } else if (direct_asked) {
        wanted.direct_asked = true;
        if (request.size >= kPlanSizeMin) look_at_residency(slot, model);
    } else if (request.options.cache == CachePolicy::kKeep) {
        wanted.cached_because = RouteReason::kKeep;
    } else {
        look_at_residency(slot, model);
        if (request.options.cache == CachePolicy::kDrop && source.file->drop_refused()) {
            // Only direct reads leave nothing behind.
            model.buffered_ns = model.buffered_ns_per_byte = 1e9;
        }
    }
    wanted.residency = {runs_.data(), run_count_};
    return planner_.plan(wanted, model);
}

void Executor::plan(Slot& slot) {
    const Request& request = slot.request;
    if (is_plain(request)) {  // what every plan of it would be
        const Extent all{request.offset, request.size};
        slot.transfers.assign(1, {all, all, Route::kCached, RouteReason::kSmall, 0});
        return;
    }
    const uint64_t started = request.report != nullptr ? base::monotonic_ns() : 0;
    const auto plan = make_plan(slot);
    if (!plan.ok()) {
        stop_at(slot, request.offset, plan.status().error_number(), Route::kCached);
    } else {
        cut(slot, plan.value().transfers);
    }
    if (request.report != nullptr) request.report->plan_ns += base::monotonic_ns() - started;
}

// Long cached transfers become several; with `strict` what cannot take its route is an error.
void Executor::cut(Slot& slot, std::span<const Transfer> transfers) {
    const ReadOptions& options = slot.request.options;
    const bool lone = !slot.request.device_memory &&
                      std::none_of(transfers.begin(), transfers.end(),
                                   [](const Transfer& t) { return t.route != Route::kCached; });
    slot.call_size_max = lone ? kLoneCallSizeMax : kCallSizeMax;
    for (Transfer transfer : transfers) {
        if (options.strict && options.route.has_value() && transfer.route != *options.route) {
            stop_at(slot, transfer.range.offset, EOPNOTSUPP, *options.route);
            continue;
        }
        while (transfer.route == Route::kCached && transfer.range.size > slot.call_size_max) {
            Transfer head = transfer;
            head.range.size = slot.call_size_max;
            head.moved = head.range;
            slot.transfers.push_back(head);
            transfer.range = {head.range.end(), transfer.range.size - slot.call_size_max};
            transfer.moved = transfer.range;
        }
        slot.transfers.push_back(transfer);
    }
    // Seldom any bytes: those by which the file has grown since it was opened.
    const uint64_t planned = transfers.empty() ? slot.request.offset : transfers.back().range.end();
    const uint64_t end = slot.request.offset + slot.request.size;
    if (planned == end) return;
    const Extent rest{planned, end - planned};
    slot.transfers.push_back({rest, rest, Route::kCached, RouteReason::kSmall, 0});
}

// The bytes from `offset` on did not arrive, because of `error`, or, 0, because the file ends.
void Executor::stop_at(Slot& slot, uint64_t offset, int error, Route route) {
    // Of a gap at one place an error says more than the end of the file.
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

// Fills batch_ with what can start now, direct transfers of all requests and, with `copies`, behind
// them one cached one, and submits it. False: nothing could start.
bool Executor::pump(bool copies) {
    batch_.clear();
    for (Slot* slot : unstarted_) {
        while (prepare(*slot, true)) {
        }
    }
    for (Slot* slot : unstarted_) {
        if (!copies || prepare(*slot, false)) break;
    }
    std::erase_if(unstarted_, [](const Slot* slot) { return slot->all_started(); });
    call_ns_ = 0;
    if (batch_.empty()) return false;
    const bool timed = batch_.size() == 1 && operations_[batch_[0].cookie].is_resident_call();
    const uint64_t begin_ns = timed ? base::monotonic_ns() : 0;
    const size_t taken = queue_->submit(batch_);
    if (timed) {
        call_ns_ = base::monotonic_ns() - begin_ns;
        call_index_ = batch_[0].cookie;
    }
    PENSTOCK_CHECK(taken == batch_.size(), "a queue takes as many operations as its depth");
    return true;
}

// Puts the next direct transfer of `slot`, or its next cached ones, into batch_. False: there is
// none, or no room for it.
bool Executor::prepare(Slot& slot, bool direct) {
    const std::vector<Transfer>& transfers = slot.transfers;
    size_t& next = direct ? slot.next_direct : slot.next_cached;
    while (next < transfers.size() && (transfers[next].route != Route::kCached) != direct) ++next;
    if (free_operations_.empty()) return false;
    if (!direct && !slot.again.empty()) {
        if (!enlist(slot, slot.again.back(), 1)) return false;
        slot.again.pop_back();
        return true;
    }
    if (next == transfers.size()) return false;
    size_t count = 1;
    if (!direct) {
        const Extent& first = transfers[next].range;
        while (next + count < transfers.size()) {
            const Transfer& more = transfers[next + count];
            if (more.route != Route::kCached || slot.drops(more) != slot.drops(transfers[next]) ||
                more.range.end() - first.offset > slot.call_size_max ||
                more.range.offset != transfers[next + count - 1].range.end())
                break;
            ++count;
        }
    }
    if (!enlist(slot, next, count)) return false;
    next += count;
    slot.started += count;
    return true;
}

// One operation for `count` transfers from `first` on. False: it has to wait for staging.
bool Executor::enlist(Slot& slot, size_t first, size_t count) {
    const uint32_t index = free_operations_.back();
    Operation& operation = operations_[index];
    const Transfer& front = slot.transfers[first];
    const Transfer& back = slot.transfers[first + count - 1];
    operation.slot = &slot;
    operation.first = first;
    operation.count = count;
    operation.range = {front.range.offset, back.range.end() - front.range.offset};
    operation.moved = {front.moved.offset, back.moved.end() - front.moved.offset};
    operation.staging = -1;
    operation.pieces.clear();
    const Request& request = slot.request;
    bool straight = !request.device_memory && operation.moved == operation.range;
    if (straight) {
        const storage::DirectAlignment alignment = request.source->file->direct_alignment();
        uint64_t at = request.offset;
        for (const iovec& piece : request.pieces) {
            const Extent part = intersect({at, piece.iov_len}, operation.range);
            at += piece.iov_len;
            if (part.empty()) {
                if (at >= operation.range.end()) break;
                continue;
            }
            auto* to = static_cast<std::byte*>(piece.iov_base) +
                       (part.offset - (at - piece.iov_len));
            if (front.route != Route::kCached) {
                straight = straight && reinterpret_cast<uintptr_t>(to) % alignment.memory == 0 &&
                           part.size % alignment.offset == 0;
            }
            operation.pieces.push_back({to, part.size});
        }
    }
    if (!straight) {
        operation.staging = staging_->take();
        if (operation.staging < 0) return false;
        // The bytes lie in the slot as they lie in the file modulo a page, so that copies are
        // aligned.
        std::byte* to = staging_->memory(operation.staging) + operation.moved.offset % kPageSize;
        operation.pieces.assign(1, {to, operation.moved.size});
    }
    free_operations_.pop_back();
    ++slot.running;
    ++slot.operations;
    storage::ReadOperation read{request.source->file.get(), operation.moved.offset,
                                operation.pieces, index};
    read.route = front.route;
    read.drop = slot.drops(front);
    batch_.push_back(read);
    if (request.report != nullptr) ++request.report->transfers;
    if (front.route == Route::kCached) {
        ++cached_calls_;
    } else if (slot.direct_begin_ns == 0) {
        slot.direct_begin_ns = base::monotonic_ns();
        slot.cached_calls = cached_calls_;
    }
    return true;
}

size_t Executor::reap(std::span<Outcome> out, bool wait) {
    for (;;) {
        const bool started = pump(true);
        const bool idle = !started && finished_.empty();
        const size_t count = queue_->reap(completions_,
                                          wait && idle && in_work_ > 0 && !staging_->copying());
        for (size_t i = 0; i < count; ++i) settle(completions_[i]);
        collect_copies(wait && idle && count == 0);
        size_t stored = 0;
        for (; stored < out.size() && !finished_.empty(); ++stored) out[stored] = finished_.pop();
        if (stored > 0 || in_work_ == 0) return stored;
        if (!wait && !started && count == 0) return 0;
    }
}

// What storage says of one operation.
void Executor::settle(const storage::Completion& completion) {
    Operation& operation = operations_[completion.cookie];
    Slot& slot = *operation.slot;
    Transfer& front = operation.front();
    if (call_ns_ != 0 && completion.cookie == call_index_)
        observe_cached(operation, completion.bytes);
    if (completion.error != 0 && front.route != Route::kCached &&
        refuses_direct(completion.error)) {
        slot.request.source->direct_refused.store(true, std::memory_order_relaxed);
        const ReadOptions& options = slot.request.options;
        if (!options.strict || !options.route.has_value()) {
            front.route = Route::kCached;
            front.reason = RouteReason::kRefused;
            front.moved = front.range;
            front.swallowed_size = 0;
            if (slot.all_started()) unstarted_.push_back(&slot);
            slot.again.push_back(operation.first);
            end_operation(operation);
            return;
        }
        operation.good = 0;
        operation.error = EOPNOTSUPP;
        return arrive(operation);
    }
    const uint64_t skipped = operation.range.offset - operation.moved.offset;
    const uint64_t good = std::min(completion.bytes - std::min(completion.bytes, skipped),
                                   operation.range.size);
    operation.good = good;
    operation.error = good < operation.range.size ? completion.error : 0;
    if (operation.staging < 0 || good == 0) return arrive(operation);
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

// From staging to the device, behind what is on its way already.
void Executor::send(Operation& operation, size_t from) {
    const Request& request = operation.slot->request;
    auto* to = static_cast<std::byte*>(request.pieces.front().iov_base) +
               (operation.range.offset - request.offset);
    if (broken_.ok()) broken_ = staging_->copy_out(operation.staging, to, from, operation.good);
    if (broken_.ok()) {
        copying_[static_cast<size_t>(operation.staging)] = &operation;
        return;
    }
    operation.good = 0;
    operation.error = EIO;
    arrive(operation);
}

void Executor::collect_copies(bool wait) {
    if (!staging_->copying()) return;
    if (Status status = staging_->close_lot(); !status.ok()) broken_ = status;
    copied_.clear();
    if (Status status = staging_->finished(&copied_, wait); !status.ok()) broken_ = status;
    for (const int32_t slot : copied_) {
        Operation& operation = *copying_[static_cast<size_t>(slot)];
        if (!broken_.ok()) {
            operation.good = 0;
            operation.error = EIO;
        }
        arrive(operation);
    }
}

// The last of an operation: its bytes are where they belong, or it is known why not.
void Executor::arrive(Operation& operation) {
    Slot& slot = *operation.slot;
    if (operation.good < operation.range.size) {
        stop_at(slot, operation.range.offset + operation.good, operation.error,
                operation.front().route);
    }
    if (Report* report = slot.request.report; report != nullptr) {
        for (size_t i = 0; i < operation.count; ++i) {
            const Transfer& transfer = slot.transfers[operation.first + i];
            const uint64_t bytes = extent::intersect(transfer.range,
                                                     {operation.range.offset, operation.good})
                                       .size;
            report->bytes += bytes;
            report->route_bytes[static_cast<size_t>(transfer.route)] += bytes;
            report->reason_bytes[static_cast<size_t>(transfer.reason)] += bytes;
        }
    }
    end_operation(operation);
}

void Executor::end_operation(Operation& operation) {
    Slot& slot = *operation.slot;
    if (operation.staging >= 0) staging_->give_back(operation.staging);
    free_operations_.push_back(static_cast<uint32_t>(&operation - operations_.data()));
    --slot.running;
    finish_if_done(slot);
}

void Executor::finish_if_done(Slot& slot) {
    if (slot.running > 0 || !slot.all_started()) return;
    if (slot.direct_begin_ns != 0) observe_direct(slot);
    const Request& request = slot.request;
    Outcome outcome{request.cookie, request.size, 0, slot.operations};
    if (slot.stop != kNowhere) {
        outcome.bytes = slot.stop - request.offset;
        outcome.error = slot.error;
    }
    finished_.push(outcome);
    free_slots_.push_back(&slot);
    --in_work_;
}

// What direct transfers took, from the first to the last, without what those of an earlier request
// took before. Not where a cached call kept this thread from seeing them complete.
void Executor::observe_direct(const Slot& slot) {
    const uint64_t now_ns = base::monotonic_ns();
    const bool queued = slot.direct_begin_ns < direct_end_ns_;
    const uint64_t begin_ns = queued ? direct_end_ns_ : slot.direct_begin_ns;
    direct_end_ns_ = now_ns;
    if (slot.stop != kNowhere || slot.cached_calls != cached_calls_) return;
    planner::Observation seen{planner::Sample::Kind::kDirect, 0, 0,
                              static_cast<double>(now_ns - begin_ns)};
    for (const Transfer& transfer : slot.transfers) {
        if (transfer.route == Route::kCached) continue;
        ++seen.count;
        seen.size += transfer.moved.size;
    }
    Costs& costs = *slot.request.source->costs;
    if (queued) seen.ns += costs.model().direct_start_ns;  // hidden by the request before
    costs.refine(seen);
}

// The completion came with the call: what submitting took is what the call took.
void Executor::observe_cached(const Operation& operation, uint64_t bytes) {
    if (bytes != operation.moved.size) return;
    operation.slot->request.source->costs->refine(
        {planner::Sample::Kind::kCached, 1, bytes, static_cast<double>(call_ns_)});
    call_ns_ = 0;
}

}  // namespace penstock::transfer
