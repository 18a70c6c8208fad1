#include "planner/planner.h"

#include <algorithm>
#include <vector>

#include "planner/cells.h"
#include "planner/cheapest.h"
#include "planner/costs.h"
#include "planner/greedy.h"
#include "planner/overlapped.h"

namespace penstock::planner {
namespace {

using extent::Extent;
using extent::Route;
using extent::RouteReason;

void emit_copies(const Cells& cells, size_t first, size_t last, std::vector<Transfer>* out) {
    for (size_t i = first; i < last;) {
        const RouteReason reason = cells.cached_reason(i);
        const size_t from = i;
        while (i < last && cells.cached_reason(i) == reason) ++i;
        const Extent range = cells.wanted(from, i);
        out->push_back({range, range, Route::kCached, reason, 0});
    }
}

void emit_direct(const Cells& cells, size_t first, size_t last, const Request& request,
                 std::vector<Transfer>* out) {
    Transfer transfer;
    transfer.range = cells.wanted(first, last);
    transfer.moved = {cells.start + cells.ends[first],
                      uint64_t{cells.ends[last]} - cells.ends[first]};
    transfer.route = request.direct.route;
    for (size_t i = first; i < last; ++i) {
        if ((cells.flags[i] & CellFlags::kMissing) == 0)
            transfer.swallowed_size += cells.wanted_size(i);
    }
    transfer.reason = request.direct_asked                             ? RouteReason::kAsked
                      : transfer.swallowed_size == transfer.range.size ? RouteReason::kSwallowed
                                                                       : RouteReason::kMissing;
    out->push_back(transfer);
}

void emit(const Cells& cells, std::span<const Step> steps, const Request& request,
          std::vector<Transfer>* out) {
    for (size_t i = 0; i < steps.size();) {
        const size_t first = i++;
        if (steps[first] == Step::kCopy) {
            while (i < steps.size() && steps[i] == Step::kCopy) ++i;
            emit_copies(cells, first, i, out);
        } else {
            while (i < steps.size() && steps[i] == Step::kGoOn) ++i;
            emit_direct(cells, first, i, request, out);
        }
    }
}

}  // namespace

struct Planner::Scratch {
    Cells cells;
    CheapestWay cheapest;
    OverlappedWay overlapped;
    std::vector<Step> steps;
    std::vector<Step> copies;
    std::vector<Transfer> transfers;

    // Fills `steps`; returns what no plan over these cells can be below, 0 where that is not known.
    double find(Algorithm algorithm, const CostModel& model);
    double find_exact(const CostModel& model);
};

double Planner::Scratch::find_exact(const CostModel& model) {
    cheapest.find(cells, model, {}, &steps);
    const double mixed = costs_of(cells, model, steps).serial_ns(model);
    // The cheapest way counts no direct_start_ns, which only the plan without direct transfers is
    // spared.
    copy_all(cells, &copies);
    const double copied = costs_of(cells, model, copies).serial_ns(model);
    if (copied <= mixed) steps.swap(copies);
    return std::min(mixed, copied);
}

double Planner::Scratch::find(Algorithm algorithm, const CostModel& model) {
    if (algorithm == Algorithm::kGreedy) {
        greedy_way(cells, model, &steps);
        return 0;
    }
    // With all of it in the cache, nobody's disk is asked to share the copier's work.
    if (algorithm == Algorithm::kExact || cells.missing == 0) return find_exact(model);
    double bound_ns = 0;
    overlapped.find(cells, model, cheapest, &steps, &bound_ns);
    return bound_ns;
}

Planner::Planner(const Options& options)
    : options_(options), scratch_(std::make_unique<Scratch>()) {
    if (!base::is_power_of_two(options_.page_size) || options_.page_size > kRequestSizeMax)
        options_.page_size = Options{}.page_size;
    if (options_.unknown_as != extent::Residency::kCached)
        options_.unknown_as = extent::Residency::kMissing;
}
Planner::~Planner() = default;
Planner::Planner(Planner&&) noexcept = default;
Planner& Planner::operator=(Planner&&) noexcept = default;

Result<Plan> Planner::plan(const Request& request, const CostModel& given) {
    const Extent& range = request.range;
    if (range.size > kRequestSizeMax || range.offset > INT64_MAX - range.size)
        return Status(EINVAL, "plan", "the range is too long or ends beyond the largest file");
    if (range.empty()) return Plan{};
    Scratch& scratch = *scratch_;
    const CostModel model = sane(given);
    const std::optional<RouteReason> never = never_direct(request);
    cut(request, options_, model, !never.has_value(), &scratch.cells);

    Plan plan;
    const bool no_choice = never.has_value() || scratch.cells.directable == 0;
    if (no_choice) {
        copy_all(scratch.cells, &scratch.steps);
    } else if (request.direct_asked) {
        direct_all(scratch.cells, &scratch.steps);
    } else {
        plan.bound_ns = scratch.find(options_.algorithm, model);
    }
    const Costs costs = costs_of(scratch.cells, model, scratch.steps);
    plan.copy_ns = costs.copy_ns;
    plan.direct_ns = costs.direct_ns + costs.start_ns(model);
    plan.predicted_ns = options_.algorithm == Algorithm::kOverlapped ? costs.overlapped_ns(model)
                                                                     : costs.serial_ns(model);
    if (no_choice) plan.bound_ns = plan.predicted_ns;
    scratch.transfers.clear();
    if (never.has_value()) {
        scratch.transfers.push_back({range, range, Route::kCached, *never, 0});
    } else {
        emit(scratch.cells, scratch.steps, request, &scratch.transfers);
    }
    plan.transfers = scratch.transfers;
    return plan;
}

}  // namespace penstock::planner
