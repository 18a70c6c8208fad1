#include "planner/planner.h"

#include <algorithm>
#include <vector>

#include "planner/buffered.h"
#include "planner/cells.h"
#include "planner/cheapest.h"
#include "planner/costs.h"
#include "planner/greedy.h"
#include "planner/overlapped.h"

namespace penstock::planner {
namespace {

using extent::Extent;

void emit_copies(const Cells& cells, const Leg& leg, std::vector<Transfer>* out) {
    for (size_t i = leg.first; i < leg.last;) {
        const RouteReason reason = cells.cached_reason(i);
        const size_t first = i++;
        while (i < leg.last && cells.cached_reason(i) == reason) ++i;
        const Extent range = cells.wanted(first, i);
        out->push_back({range, range, Route::kCached, reason, 0});
    }
}

Transfer direct_transfer(const Cells& cells, const Leg& leg, const Request& request) {
    const CellEnd &from = cells.ends[leg.first], &to = cells.ends[leg.last];
    Transfer transfer;
    transfer.range = cells.wanted(leg.first, leg.last);
    transfer.moved = {cells.start + from.offset, cells.size(leg.first, leg.last)};
    transfer.route = request.direct.route;
    transfer.swallowed_size = transfer.range.size - (to.missing - from.missing);
    transfer.reason = request.direct_asked                             ? RouteReason::kAsked
                      : transfer.swallowed_size == transfer.range.size ? RouteReason::kSwallowed
                                                                       : RouteReason::kMissing;
    return transfer;
}

}  // namespace

struct Planner::Scratch {
    Cells cells;
    CheapestWay cheapest;
    OverlappedWay overlapped;
    Way way;
    std::vector<Transfer> transfers;

    // Fills `way`. Returns a lower bound on all ways through these cells, or 0 if none is known.
    double find(Algorithm algorithm, const CostModel& model);
    double find_exact(const CostModel& model);
};

double Planner::Scratch::find_exact(const CostModel& model) {
    cheapest.find(cells, model, {}, &way);
    const double mixed = costs_of(cells, model, way).serial_ns(model);
    // The cheapest way is without direct_start_ns, which only a way without direct transfers
    // avoids.
    const Leg all{0, static_cast<uint32_t>(cells.count), true};
    const double copied = costs_of(cells, model, all).serial_ns(model);
    if (copied <= mixed) copy_all(cells, &way);
    return std::min(mixed, copied);
}

double Planner::Scratch::find(Algorithm algorithm, const CostModel& model) {
    if (algorithm == Algorithm::kGreedy) {
        greedy_way(cells, model, &way);
        return 0;
    }
    // If all bytes are cached, the disk has no work that could overlap with the copies.
    if (algorithm == Algorithm::kExact || !cells.any_missing()) {
        const double serial_ns = find_exact(model);
        return algorithm == Algorithm::kExact ? serial_ns : 0;
    }
    double bound_ns = 0;
    overlapped.find(cells, model, cheapest, &way, &bound_ns);
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

void Planner::reserve(uint64_t size) {
    reserved_size_ = std::max(reserved_size_, std::min(size, kRequestSizeMax));
    const size_t cells = cells_max(reserved_size_, options_);
    scratch_->cells.ends.reserve(cells + 1);
    scratch_->cells.flags.reserve(cells);
    scratch_->cheapest.reserve(cells);
    scratch_->overlapped.reserve(cells);
    scratch_->way.reserve(cells);
    scratch_->transfers.reserve(cells);
}

Result<Plan> Planner::plan(const Request& request, const CostModel& model) {
    const Extent& range = request.range;
    if (range.size > kRequestSizeMax || range.offset > INT64_MAX - range.size)
        return Status(EINVAL, "plan", "the range is too long or ends beyond the largest file");
    if (range.empty()) return Plan{};
    if (range.size > reserved_size_) reserve(range.size);
    Scratch& scratch = *scratch_;
    const CostModel sound = sane(model);
    const std::optional<RouteReason> never = never_direct(request);
    cut(request, options_, sound, !never.has_value(), &scratch.cells);

    Plan plan;
    const bool no_choice = never.has_value() || scratch.cells.directable == 0;
    if (no_choice) {
        copy_all(scratch.cells, &scratch.way);
    } else if (request.direct_asked) {
        direct_all(scratch.cells, &scratch.way);
    } else {
        // No time of the searched model is larger than this multiple of the real one.
        plan.bound_ns = scratch.find(options_.algorithm, searched_model(sound, request.buffered)) /
                        (1 + sound.error);
    }
    const Costs costs = costs_of(scratch.cells, sound, scratch.way);
    plan.copy_ns = costs.copy_ns;
    plan.direct_ns = costs.direct_ns + costs.start_ns(sound);
    plan.predicted_ns = costs.serial_ns(sound);
    if (options_.algorithm == Algorithm::kOverlapped) {
        const double stretch = costs.stretch(sound);
        plan.beside_copies = costs.beside_copies(sound);
        plan.direct_ns *= stretch;
        plan.predicted_ns = std::max(costs.copy_ns, stretch * costs.storage_ns(sound));
        plan.bound_ns *= std::min(1.0, sound.direct_beside_copies);
    }
    plan.expected_ns = options_.algorithm == Algorithm::kOverlapped ? costs.expected_ns(sound)
                                                                    : plan.predicted_ns;
    if (no_choice) plan.bound_ns = plan.predicted_ns;
    // The search avoided ways that its model forbids. Their costs there exceed their real time.
    if (request.buffered != Buffered::kCheaper)
        plan.bound_ns = std::min(plan.bound_ns, plan.predicted_ns);
    scratch.transfers.clear();
    if (never.has_value()) {
        scratch.transfers.push_back({range, range, Route::kCached, *never, 0});
    } else {
        for (const Leg& leg : scratch.way) {
            if (leg.copied) {
                emit_copies(scratch.cells, leg, &scratch.transfers);
            } else {
                scratch.transfers.push_back(direct_transfer(scratch.cells, leg, request));
            }
        }
    }
    plan.transfers = scratch.transfers;
    return plan;
}

}  // namespace penstock::planner
