#include "transfer/request_planner.h"

#include <algorithm>
#include <cerrno>

#include "base/clock.h"

namespace penstock::transfer {

using extent::Extent;
using planner::Transfer;

static_assert(kRequestSizeMax <= planner::kRequestSizeMax);

namespace {

// Limit of a direct transfer into staging. A short one lets the first copy begin sooner.
constexpr uint64_t kStagedTransferSizeMax = 512 << 10;

bool has_direct(const planner::Plan& plan) {
    return std::any_of(plan.transfers.begin(), plan.transfers.end(),
                       [](const Transfer& one) { return one.route != Route::kCached; });
}

// Returns whether a read goes through the page cache without a question, because the file has long
// been hot. Not if a report must say what was cached. Only for short reads, because a wrong guess
// should not bring much into the cache.
bool is_taken_for_hot(const ActiveRequest& active) {
    const Request& request = active.request;
    return request.report == nullptr && request.size <= kCallSizeMax &&
           active.policy.asks_nothing() && request.source->long_hot();
}

uint64_t direct_size_max(const Request& request) {
    return request.device_memory ? kStagedTransferSizeMax : Staging::kSlotSize;
}

}  // namespace

RequestPlanner::RequestPlanner(uint32_t depth)
    : depth_(depth), runs_(kRequestSizeMax / kPageSize + 2) {}

void RequestPlanner::plan(ActiveRequest* active) {
    run_count_ = 0;
    if (active->request.write) {
        plan_write(active);
    } else {
        plan_read(active);
    }
    active->count_transfers();
}

void RequestPlanner::ask_residency(ActiveRequest* active, const planner::CostModel& model) {
    const Request& request = active->request;
    const uint64_t file_size = request.source->size(request.offset + request.size);
    if (request.offset >= file_size || request.source->probe.in_memory()) return;
    storage::ResidencyQuestion question;
    question.range = {request.offset, std::min(request.size, file_size - request.offset)};
    question.grain = kGrainSize;
    question.probes_max = static_cast<uint32_t>(2 * (request.size / kGrainSize + 2));
    run_count_ = request.source->probe.ask(question, runs_).runs;
    request.source->record_residency(runs());
    if (request.report != nullptr) active->runs.assign(runs().begin(), runs().end());
    planner::settle_mixed(std::span(runs_).first(run_count_), kGrainSize, model,
                          active->policy.buffered());
}

// Returns about how many bytes of `range` the OS page cache lacked when it was asked for this plan.
uint64_t RequestPlanner::missing_in(const Extent& range) const {
    double missing = 0;
    for (const extent::ResidencyRun& run : runs()) {
        const auto part = static_cast<double>(extent::intersect(run.range, range).size);
        const uint64_t lacking = run.range.size - run.resident_size;
        missing += part * static_cast<double>(lacking) / static_cast<double>(run.range.size);
    }
    return static_cast<uint64_t>(missing);
}

Result<planner::Plan> RequestPlanner::make_plan(ActiveRequest* active) {
    const Request& request = active->request;
    Source& source = *request.source;
    planner::CostModel model = source.costs->model();
    model.transfer_size_max = std::min<uint64_t>(model.transfer_size_max, direct_size_max(request));
    planner::Request wanted;
    // Bytes behind the end of the file are left to cut(): a direct transfer over it would write
    // zeros there.
    const auto cut_at_end = [&] {
        const uint64_t end = request.offset + request.size;
        const uint64_t file_size = std::max(source.size(end), request.offset);
        wanted.range = {request.offset, std::min(request.size, file_size - request.offset)};
    };
    cut_at_end();
    // Bytes that do not fit their destination pass through staging.
    wanted.memory = request.offset;
    wanted.room_before = wanted.room_behind = Staging::kMarginSize;
    active->policy.fill(&wanted);
    if (active->policy.asks_residency(request.size)) ask_residency(active, model);
    const bool unknown = run_count_ > 0 && runs_[0].state == Residency::kUnknown;
    if (unknown && !wanted.direct_asked && wanted.buffered != planner::Buffered::kNever &&
        source.trial.tries_cached())
        wanted.cached_because = RouteReason::kTimed;
    wanted.residency = runs();
    auto made = planner_.plan(wanted, model);
    if (made.ok() && has_direct(made.value()) && source.was_cut(wanted.range.end())) {
        cut_at_end();
        made = planner_.plan(wanted, model);
    }
    return made;
}

void RequestPlanner::plan_read(ActiveRequest* active) {
    const Request& request = active->request;
    Source& source = *request.source;
    const planner::RoutePolicy& policy = active->policy;
    if (!request.looks && policy.goes_through_cache(request.size)) source.read_ahead(true);
    // A read that must leave nothing behind bypasses the cache if it can, as in
    // SmallTransfers::read.
    const bool looks = request.looks ||
                       (policy.wants_drop() && request.size >= planner::kDirectSizeMin);
    const bool small = !looks && policy.is_small(request.size) && !policy.asks_cached();
    const auto read_cached = [&](RouteReason reason) {
        const Extent all{request.offset, request.size};
        active->transfers.assign(1, {all, all, Route::kCached, reason, 0});
    };
    // Every plan for a small read would be this one.
    if (small && !source.plans_small(policy, request.size)) return read_cached(RouteReason::kSmall);
    if (is_taken_for_hot(*active)) return read_cached(RouteReason::kTimed);
    const uint64_t started = request.report != nullptr ? base::monotonic_ns() : 0;
    const auto plan = make_plan(active);
    if (!plan.ok()) {
        active->stop_at(request.offset, plan.status().error_number(), Route::kCached);
    } else {
        active->beside_copies = plan.value().beside_copies;
        cut(active, plan.value().transfers);
    }
    if (small) {
        source.trial.record_plan(std::none_of(
            runs().begin(), runs().end(),
            [](const extent::ResidencyRun& run) { return run.state == Residency::kMissing; }));
    }
    if (request.report == nullptr) return;
    request.report->plan_ns += base::monotonic_ns() - started;
    if (plan.ok()) request.report->predicted_ns += static_cast<uint64_t>(plan.value().expected_ns);
}

// Cuts transfers that are too long for one operation. With `strict`, a transfer that cannot take
// its route is an error.
void RequestPlanner::cut(ActiveRequest* active, std::span<const Transfer> transfers) const {
    const std::optional<Route> only = active->policy.required();
    const bool lone = std::none_of(transfers.begin(), transfers.end(),
                                   [](const Transfer& t) { return t.route != Route::kCached; });
    active->call_size_max = lone ? kLoneCallSizeMax : kCallSizeMax;
    uint64_t size_max = active->call_size_max;
    if (active->request.device_memory && active->request.staged_part == nullptr) {
        // Short calls are joined later, while the device is busy.
        const uint64_t most = depth_ * Staging::kSlotSize / 3;
        const uint64_t joined_max = lone ? kStagedCallSizeMax : kCallSizeMax;
        active->call_size_max = std::clamp(most, kCallSizeMax, joined_max);
        size_max = kFirstStagedSizeMax;
    }
    const auto add = [&](Transfer transfer) {
        if (only.has_value() && transfer.route != *only) {
            active->stop_at(transfer.range.offset, EOPNOTSUPP, *only);
            return;
        }
        const uint64_t most = transfer.route == Route::kCached ? size_max
                                                               : direct_size_max(active->request);
        while (transfer.range.size > most) {  // a direct transfer of a read is never too long
            Transfer head = transfer;
            head.range.size = most;
            head.moved = head.range;
            active->transfers.push_back(head);
            transfer.range = {head.range.end(), transfer.range.size - most};
            transfer.moved = transfer.range;
        }
        active->transfers.push_back(transfer);
    };
    for (Transfer transfer : transfers) {
        if (transfer.reason == RouteReason::kResident && missing_in(transfer.range) > 0)
            transfer.reason = RouteReason::kCheaperBuffered;
        add(transfer);
    }
    // Bytes behind the end of the file: a read there must learn of the end. The file may have grown
    // by a few bytes at this moment.
    const uint64_t planned = transfers.empty() ? active->request.offset
                                               : transfers.back().range.end();
    const uint64_t end = active->request.offset + active->request.size;
    if (planned == end) return;
    const Extent rest{planned, end - planned};
    if ((only.has_value() && *only != Route::kCached) ||
        active->policy.must_drop(RouteReason::kSmall)) {
        active->stop_at(planned, 0, only.value_or(Route::kCached));
    } else {
        add({rest, rest, Route::kCached, RouteReason::kSmall, 0});
    }
}

void RequestPlanner::plan_write(ActiveRequest* active) {
    const Request& request = active->request;
    planner::WriteRequest wanted;
    wanted.range = {request.offset, request.size};
    active->policy.fill(&wanted);
    const planner::WritePlan plan = planner::plan_write(wanted);
    const std::span<const Transfer> planned(plan.transfers.data(), plan.count);
    const std::optional<Route> only = active->policy.required();
    for (const Transfer& transfer : planned) {
        if (!only.has_value() || transfer.route == *only) continue;
        return active->stop_at(request.offset, EOPNOTSUPP, *only);  // nothing is written
    }
    cut(active, planned);
}

}  // namespace penstock::transfer
