// Plans a request: applies its options, asks for residency, runs the planner, and cuts the plan
// into operations.
#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "transfer/executor_slot.h"

namespace penstock::transfer {

using extent::Extent;
using planner::Transfer;

static_assert(kRequestSizeMax <= planner::kRequestSizeMax);

namespace {

// Bytes that come through the cache stay there, which kDrop forbids.
planner::Buffered buffered(const Request& request) {
    return request.options.cache == CachePolicy::kDrop ? planner::Buffered::kNever
                                                       : planner::Buffered::kGaining;
}

bool has_direct(const planner::Plan& plan) {
    return std::any_of(plan.transfers.begin(), plan.transfers.end(),
                       [](const Transfer& one) { return one.route != Route::kCached; });
}

// Returns whether a read goes through the page cache without a question, because the file has long
// been hot. Not if a report must say what was cached. Only for short reads, because a wrong guess
// should not bring much into the cache.
bool is_taken_for_hot(const Request& request) {
    return request.report == nullptr && request.size <= kCallSizeMax &&
           request.options.cache == CachePolicy::kAuto && !request.options.route.has_value() &&
           request.source->long_hot();
}

}  // namespace

void Executor::look_at_residency(Slot& slot, const planner::CostModel& model) {
    const Request& request = slot.request;
    const uint64_t file_size = request.source->size(request.offset + request.size);
    run_count_ = 0;
    if (request.offset >= file_size || request.source->probe.in_memory()) return;
    storage::ResidencyQuestion question;
    question.range = {request.offset, std::min(request.size, file_size - request.offset)};
    question.grain = kGrainSize;
    question.probes_max = static_cast<uint32_t>(2 * (request.size / kGrainSize + 2));
    run_count_ = request.source->probe.ask(question, runs_).runs;
    const auto is_copied = [](const extent::ResidencyRun& run) {
        return run.state == Residency::kCached || run.state == Residency::kDirty;
    };
    request.source->record_residency(
        run_count_ > 0 && std::all_of(runs_.begin(), runs_.begin() + run_count_, is_copied));
    if (request.report != nullptr) slot.runs.assign(runs_.begin(), runs_.begin() + run_count_);
    planner::settle_mixed(std::span(runs_).first(run_count_), kGrainSize, model, buffered(request));
}

// Returns about how many bytes of `range` the OS page cache lacked when it was asked for this plan.
uint64_t Executor::missing_in(const Extent& range) const {
    double missing = 0;
    for (const extent::ResidencyRun& run : std::span(runs_).first(run_count_)) {
        const auto part = static_cast<double>(extent::intersect(run.range, range).size);
        const uint64_t lacking = run.range.size - run.resident_size;
        missing += part * static_cast<double>(lacking) / static_cast<double>(run.range.size);
    }
    return static_cast<uint64_t>(missing);
}

Result<planner::Plan> Executor::make_plan(Slot& slot) {
    const Request& request = slot.request;
    Source& source = *request.source;
    const storage::DirectAlignment alignment = source.file->direct_alignment();
    planner::CostModel model = source.costs->model();
    const uint64_t size_max = request.device_memory ? kStagedTransferSizeMax : Staging::kSlotSize;
    model.transfer_size_max = std::min<uint64_t>(model.transfer_size_max, size_max);
    planner::Request wanted;
    // Bytes behind the end of the file are left to cut(): a direct transfer over it would write
    // zeros there.
    const auto cut_at_end = [&] {
        const uint64_t end = request.offset + request.size;
        const uint64_t file_size = std::max(source.size(end), request.offset);
        wanted.range = {request.offset, std::min(request.size, file_size - request.offset)};
    };
    cut_at_end();
    wanted.direct.offset_alignment = alignment.offset;
    wanted.direct.memory_alignment = alignment.memory;
    // Bytes that do not fit their destination pass through staging.
    wanted.memory = request.offset;
    wanted.room_before = wanted.room_behind = Staging::kMarginSize;
    run_count_ = 0;
    if (const auto why = asks_cached(request.options); why.has_value()) {
        wanted.cached_because = why;
    } else if (alignment.offset == 0) {
        // The planner reports this case.
    } else if (source.direct_refused.load(std::memory_order_relaxed)) {
        wanted.cached_because = RouteReason::kRefused;
    } else if (asks_direct(request.options)) {
        wanted.direct_asked = true;
        if (request.size >= kPlanSizeMin) look_at_residency(slot, model);
    } else {
        look_at_residency(slot, model);
        const bool unknown = run_count_ > 0 && runs_[0].state == Residency::kUnknown;
        if (unknown && request.options.cache == CachePolicy::kAuto && source.trial.tries_cached())
            wanted.cached_because = RouteReason::kTimed;
    }
    wanted.buffered = buffered(request);
    wanted.residency = {runs_.data(), run_count_};
    auto made = planner_.plan(wanted, model);
    if (made.ok() && has_direct(made.value()) && source.was_cut(wanted.range.end())) {
        cut_at_end();
        made = planner_.plan(wanted, model);
    }
    return made;
}

void Executor::plan(Slot& slot) {
    const Request& request = slot.request;
    if (!request.looks && is_never_direct(request.size, request.options))
        request.source->read_ahead(true);
    // A read that must leave nothing behind bypasses the cache if it can, as in
    // Executor::read_small.
    const bool looks = request.looks || (request.options.cache == CachePolicy::kDrop &&
                                         request.size >= RouteTrial::kSizeMin);
    const bool small = !looks && is_small(request.size, request.options) &&
                       !asks_cached(request.options);
    if (small && !plans_small(*request.source, request.size, request.options)) {
        // Every plan for it would be this one.
        const Extent all{request.offset, request.size};
        slot.transfers.assign(1, {all, all, Route::kCached, RouteReason::kSmall, 0});
        return;
    }
    if (is_taken_for_hot(request)) {
        const Extent all{request.offset, request.size};
        slot.transfers.assign(1, {all, all, Route::kCached, RouteReason::kTimed, 0});
        return;
    }
    const uint64_t started = request.report != nullptr ? base::monotonic_ns() : 0;
    const auto plan = make_plan(slot);
    if (!plan.ok()) {
        stop_at(slot, request.offset, plan.status().error_number(), Route::kCached);
    } else {
        slot.beside_copies = plan.value().beside_copies;
        cut(slot, plan.value().transfers);
    }
    if (small) {
        const auto runs = std::span(runs_).first(run_count_);
        request.source->trial.record_plan(std::none_of(
            runs.begin(), runs.end(),
            [](const extent::ResidencyRun& run) { return run.state == Residency::kMissing; }));
    }
    if (request.report == nullptr) return;
    request.report->plan_ns += base::monotonic_ns() - started;
    if (plan.ok()) request.report->predicted_ns += static_cast<uint64_t>(plan.value().expected_ns);
}

// Cuts transfers that are too long for one operation. With `strict`, a transfer that cannot take
// its route is an error.
void Executor::cut(Slot& slot, std::span<const Transfer> transfers) {
    const ReadOptions& options = slot.request.options;
    const std::optional<Route> only = options.strict ? asked_route(options) : std::nullopt;
    const bool lone = std::none_of(transfers.begin(), transfers.end(),
                                   [](const Transfer& t) { return t.route != Route::kCached; });
    slot.call_size_max = lone ? kLoneCallSizeMax : kCallSizeMax;
    uint64_t size_max = slot.call_size_max;
    const uint64_t direct_size_max = slot.request.device_memory ? kStagedTransferSizeMax
                                                                : Staging::kSlotSize;
    if (slot.request.device_memory && slot.request.staged_part == nullptr) {
        // Short calls are joined later, while the device is busy.
        const uint64_t most = limits_.depth * Staging::kSlotSize / 3;
        const uint64_t joined_max = lone ? kStagedCallSizeMax : kCallSizeMax;
        slot.call_size_max = std::clamp(most, kCallSizeMax, joined_max);
        size_max = kFirstStagedSizeMax;
    }
    const auto add = [&](Transfer transfer) {
        if (only.has_value() && transfer.route != *only) {
            stop_at(slot, transfer.range.offset, EOPNOTSUPP, *only);
            return;
        }
        const uint64_t most = transfer.route == Route::kCached ? size_max : direct_size_max;
        while (transfer.range.size > most) {  // a direct transfer of a read is never too long
            Transfer head = transfer;
            head.range.size = most;
            head.moved = head.range;
            slot.transfers.push_back(head);
            transfer.range = {head.range.end(), transfer.range.size - most};
            transfer.moved = transfer.range;
        }
        slot.transfers.push_back(transfer);
    };
    for (Transfer transfer : transfers) {
        if (transfer.reason == RouteReason::kResident && missing_in(transfer.range) > 0)
            transfer.reason = RouteReason::kCheaperBuffered;
        add(transfer);
    }
    // Bytes behind the end of the file: a read there must learn of the end. The file may have grown
    // by a few bytes at this moment.
    const uint64_t planned = transfers.empty() ? slot.request.offset : transfers.back().range.end();
    const uint64_t end = slot.request.offset + slot.request.size;
    if (planned == end) return;
    const Extent rest{planned, end - planned};
    if ((only.has_value() && *only != Route::kCached) || slot.must_drop()) {
        stop_at(slot, planned, 0, only.value_or(Route::kCached));
    } else {
        add({rest, rest, Route::kCached, RouteReason::kSmall, 0});
    }
}

}  // namespace penstock::transfer
