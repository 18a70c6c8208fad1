#include "transfer/cost_observer.h"

#include <utility>

#include "base/clock.h"
#include "base/waits.h"

namespace penstock::transfer {
namespace {

// Returns whether the operation is most likely a copy, and long enough to be worth two reads of
// the clock.
bool is_timed_call(const ActiveOperation& operation) {
    const planner::Transfer& front = operation.front();
    const bool copied = front.reason == RouteReason::kResident ||
                        front.reason == RouteReason::kTimed;
    if (!copied || operation.range.size < kGrainSize) return false;
    for (size_t i = 1; i < operation.count; ++i) {  // several transfers only if parts of one
        if (!operation.request().device_memory || (&front)[i].reason != front.reason) return false;
    }
    return true;
}

}  // namespace

void CostObserver::begin_submission(const ActiveOperation* lone) {
    call_ = lone != nullptr && is_timed_call(*lone) ? lone : nullptr;
    if (call_ == nullptr) return;
    (void)base::waited_since_asked();  // so that the next answer is about this call
    call_ns_ = base::monotonic_ns();
}

void CostObserver::end_submission() {
    if (call_ != nullptr) call_ns_ = base::monotonic_ns() - call_ns_;
}

void CostObserver::observe_call(const ActiveOperation& operation, uint64_t bytes) {
    if (&operation != call_ || bytes != operation.moved.size) return;
    call_ = nullptr;
    Source& source = *operation.request().source;
    const auto ns = static_cast<double>(call_ns_);
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

void CostObserver::observe_direct(const ActiveRequest& active) {
    if (active.direct_begin_ns == 0) return;
    const uint64_t now_ns = base::monotonic_ns();
    const bool queued = active.direct_begin_ns < direct_end_ns_;
    const uint64_t begin_ns = queued ? direct_end_ns_ : active.direct_begin_ns;
    direct_end_ns_ = now_ns;
    const bool begin_seen = !queued || direct_end_seen_;
    direct_end_seen_ = caught_up_;
    if (active.stop != kNowhere || !begin_seen || !direct_end_seen_) return;
    planner::Observation seen{planner::Sample::Kind::kDirect, 0, 0,
                              static_cast<double>(now_ns - begin_ns), active.beside_copies};
    for (const planner::Transfer& transfer : active.transfers) {
        if (transfer.route == Route::kCached) continue;
        ++seen.count;
        seen.size += transfer.moved.size;
    }
    Costs& costs = *active.request.source->costs;
    if (costs.traffic().trying()) return;                  // the depth on trial may not stay
    if (queued) seen.ns += costs.model().direct_start_ns;  // hidden by the request before
    costs.refine(seen);
}

}  // namespace penstock::transfer
