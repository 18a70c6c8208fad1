// How an executor plans a request: what its options ask, residency, planner, and the cutting of
// what comes out into operations.
#include <algorithm>
#include <cerrno>
#include <cmath>

#include "base/clock.h"
#include "transfer/executor_slot.h"

namespace penstock::transfer {

using extent::Extent;
using planner::Transfer;

static_assert(kRequestSizeMax <= planner::kRequestSizeMax);

// How many times as fast as direct reads the page cache must bring in what it has not, to be asked
// for more than the gaps in what it has.
constexpr double kBufferedGainMin = 1.25;

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
    request.source->hot.store(run_count_ == 1 && runs_[0].state == Residency::kCached,
                              std::memory_order_relaxed);
    if (request.report != nullptr) slot.runs.assign(runs_.begin(), runs_.begin() + run_count_);
    for (extent::ResidencyRun& run : std::span(runs_).first(run_count_)) {
        if (run.state != Residency::kMixed) continue;
        // Plans know pages that are there and pages that are not. The missing ones of a mixed run
        // come by small reads, one a grain at least, and stay, or all of it by a direct one.
        const double grains = std::ceil(static_cast<double>(run.range.size) / kGrainSize);
        const double missing = static_cast<double>(run.range.size - run.resident_size);
        const double direct_ns = static_cast<double>(run.range.size) * model.direct_ns_per_byte;
        const double buffered_ns = missing * model.buffered_ns_per_byte +
                                   grains * model.buffered_ns;
        const bool direct = request.options.cache == CachePolicy::kDrop || direct_ns < buffered_ns;
        run.state = direct ? Residency::kMissing : Residency::kCached;
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
    const uint64_t file_size = std::max(source.size(request.offset + request.size), request.offset);
    wanted.range = {request.offset, std::min(request.size, file_size - request.offset)};
    wanted.direct.offset_alignment = alignment.offset;
    wanted.direct.memory_alignment = alignment.memory;
    // What does not fit where it is to go passes through staging.
    wanted.memory = request.offset;
    wanted.room_before = wanted.room_behind = Staging::kMarginSize;
    run_count_ = 0;
    if (const auto why = asks_cached(request.options); why.has_value()) {
        wanted.cached_because = why;
    } else if (alignment.offset == 0) {
        // The planner says so.
    } else if (source.direct_refused.load(std::memory_order_relaxed)) {
        wanted.cached_because = RouteReason::kRefused;
    } else if (asks_direct(request.options)) {
        wanted.direct_asked = true;
        if (request.size >= kPlanSizeMin) look_at_residency(slot, model);
    } else {
        look_at_residency(slot, model);
        const bool unknown = run_count_ > 0 && runs_[0].state == Residency::kUnknown;
        if (unknown && request.options.cache == CachePolicy::kAuto && source.unknown.tries_cached())
            wanted.cached_because = RouteReason::kTimed;
        // What comes through the cache stays there, with what the kernel reads ahead of it, and
        // pushes out what others had: not for the sake of some constants.
        if (request.options.cache == CachePolicy::kDrop ||
            model.direct_ns_per_byte < kBufferedGainMin * model.buffered_ns_per_byte) {
            model.buffered_ns = model.buffered_ns_per_byte = 1e9;
        }
    }
    wanted.residency = {runs_.data(), run_count_};
    return planner_.plan(wanted, model);
}

void Executor::plan(Slot& slot) {
    const Request& request = slot.request;
    if (is_small(request.size, request.options) && !asks_cached(request.options)) {
        // What every plan of it would be.
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
    const std::optional<Route> only = options.strict ? asked_route(options) : std::nullopt;
    const bool lone = !slot.request.device_memory &&
                      std::none_of(transfers.begin(), transfers.end(),
                                   [](const Transfer& t) { return t.route != Route::kCached; });
    slot.call_size_max = lone ? kLoneCallSizeMax : kCallSizeMax;
    const auto add = [&](Transfer transfer) {
        if (only.has_value() && transfer.route != *only) {
            stop_at(slot, transfer.range.offset, EOPNOTSUPP, *only);
            return;
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
    };
    for (const Transfer& transfer : transfers) add(transfer);
    // Behind the end of the file: who reads there is told so. It may have grown by a few bytes in
    // this moment.
    const uint64_t planned = transfers.empty() ? slot.request.offset : transfers.back().range.end();
    const uint64_t end = slot.request.offset + slot.request.size;
    if (planned == end) return;
    const Extent rest{planned, end - planned};
    if (only.has_value() && *only != Route::kCached) {
        stop_at(slot, planned, 0, *only);
    } else {
        add({rest, rest, Route::kCached, RouteReason::kSmall, 0});
    }
}

}  // namespace penstock::transfer
