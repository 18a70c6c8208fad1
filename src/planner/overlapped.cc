#include "planner/overlapped.h"

#include <algorithm>

namespace penstock::planner {
namespace {

// Time of a pass over the cells. Another pass must be able to gain at least that much.
constexpr double kPassNsPerCell = 8;
constexpr int kPassesMax = 16;
constexpr double kWeightMin = 1e-3;
constexpr double kWeightStep = 4;
constexpr double kNearEnough = 1.002;
// Within this many neighbouring cells, each one is tried as the crossing point.
constexpr uint32_t kScanned = 32;

bool is_light(const Costs& costs, const CostModel& model) {
    return costs.copy_ns <= costs.storage_ns(model);
}

// A way that follows `first` up to a cell and `last` from there on.
class Crossing {
public:
    Crossing(const Cells& cells, const CostModel& model, const Way& first, const Way& last,
             std::vector<Costs>* before_first, std::vector<Costs>* before_last)
        : cells_(cells),
          model_(model),
          first_(first),
          last_(last),
          before_first_(*before_first),
          before_last_(*before_last) {
        add_up(first, before_first);
        add_up(last, before_last);
    }

    // Returns the costs of crossing before `cell`, which must not be the first cell. If both ways
    // copy there, the result is slightly too high.
    [[nodiscard]] Costs costs_at(uint32_t cell) const {
        const size_t i = leg_at(first_, cell - 1), k = leg_at(last_, cell);
        Costs sum = before_first_[i];
        Leg part = first_[i];
        part.last = cell;
        sum += costs_of(cells_, model_, part);
        part = last_[k];
        part.first = cell;
        sum += costs_of(cells_, model_, part);
        const Costs &all = before_last_.back(), &before = before_last_[k + 1];
        sum += {all.copy_ns - before.copy_ns, all.direct_ns - before.direct_ns,
                all.shared_ns - before.shared_ns, all.transfers - before.transfers};
        return sum;
    }

private:
    void add_up(const Way& way, std::vector<Costs>* before) {
        before->assign(1, {});
        for (const Leg& leg : way) {
            Costs sum = before->back();
            sum += costs_of(cells_, model_, leg);
            before->push_back(sum);
        }
    }
    // Returns the index of the leg that contains `cell`.
    static size_t leg_at(const Way& way, uint32_t cell) {
        const auto behind = std::upper_bound(
            way.begin(), way.end(), cell,
            [](uint32_t value, const Leg& leg) { return value < leg.last; });
        return static_cast<size_t>(behind - way.begin());
    }

    const Cells& cells_;
    const CostModel& model_;
    const Way &first_, &last_;
    const std::vector<Costs>&before_first_, &before_last_;
};

}  // namespace

void OverlappedWay::keep_if_better(const CostModel& model, const Tried& tried) {
    if (tried.costs.overlapped_ns(model) < best_.costs.overlapped_ns(model)) best_ = tried;
}

void OverlappedWay::reserve(size_t cells) {
    for (Tried* tried : {&light_, &heavy_, &tried_, &best_}) tried->way.reserve(cells);
    before_first_.reserve(cells + 1);
    before_last_.reserve(cells + 1);
}

void OverlappedWay::find(const Cells& cells, const CostModel& model, CheapestWay& cheapest,
                         Way* way, double* bound_ns) {
    direct_all(cells, &light_.way);
    light_.costs = costs_of(cells, model, light_.way);
    copy_all(cells, &heavy_.way);
    heavy_.costs = costs_of(cells, model, heavy_.way);
    copies_ = heavy_.costs;
    best_ = light_;
    keep_if_better(model, heavy_);
    bound_ns_ = 0;
    close_in(cells, model, cheapest);
    // Crossing takes a fraction of a pass.
    if (best_.costs.overlapped_ns(model) > bound_ns_ * kNearEnough) {
        cross(cells, model, light_, heavy_);
        cross(cells, model, heavy_, light_);
    }
    *way = best_.way;
    *bound_ns = std::min(bound_ns_, best_.costs.overlapped_ns(model));
}

bool OverlappedWay::is_worth_more(const Cells& cells, const CostModel& model) const {
    return best_.costs.overlapped_ns(model) >
           bound_ns_ + kPassNsPerCell * static_cast<double>(cells.count);
}

void OverlappedWay::try_weights(const Cells& cells, const CostModel& model, CheapestWay& cheapest,
                                double copy) {
    const double direct = 1 - copy;
    const double least = cheapest.find(cells, model, {copy, direct, direct}, &tried_.way);
    tried_.costs = costs_of(cells, model, tried_.way);
    keep_if_better(model, tried_);
    // Each plan but the one that only copies also has direct_start_ns. The weighted sum of both
    // resources is no more than the later one.
    bound_ns_ = std::max(bound_ns_,
                         std::min(least + direct * model.direct_start_ns,
                                  copy * copies_.copy_ns + direct * copies_.storage_ns(model)));
}

// The two initial ways may lie on one side of the hull. Or one may save nothing for the resource
// that it should relieve: a missing run is also a transfer for the storage, and submitting may take
// longer than copying. Then weights are tried towards the missing side. Otherwise the next weights
// are those for which both ways cost the same.
void OverlappedWay::close_in(const Cells& cells, const CostModel& model, CheapestWay& cheapest) {
    double most = 0.5, least = 0.5;  // the next weights of copying to try on each side
    for (int pass = 0; pass < kPassesMax && is_worth_more(cells, model); ++pass) {
        const double fall = light_.costs.storage_ns(model) - heavy_.costs.storage_ns(model);
        const double rise = heavy_.costs.copy_ns - light_.costs.copy_ns;
        const double equal = fall / (fall + rise);
        const bool no_light = !is_light(light_.costs, model) || rise <= 0 || 1 - equal < kWeightMin;
        const bool no_heavy = is_light(heavy_.costs, model) || fall <= 0 || equal < kWeightMin;
        const bool between = !no_light && !no_heavy;
        const double copy = between ? equal : no_light ? most : least;
        if (std::min(copy, 1 - copy) < kWeightMin) return;
        try_weights(cells, model, cheapest, copy);
        const auto weighted = [&](const Costs& costs) {
            return copy * costs.copy_ns + (1 - copy) * costs.storage_ns(model);
        };
        if (between && weighted(tried_.costs) >= weighted(light_.costs) * (1 - 1e-9)) return;
        std::swap(is_light(tried_.costs, model) ? light_ : heavy_, tried_);
        most = 1 - (1 - std::max(copy, most)) / kWeightStep;
        least = std::min(copy, least) / kWeightStep;
    }
}

void OverlappedWay::cross(const Cells& cells, const CostModel& model, const Tried& first,
                          const Tried& last) {
    const Crossing crossing(cells, model, first.way, last.way, &before_first_, &before_last_);
    const auto count = static_cast<uint32_t>(cells.count);
    // The further the plan follows the light way, the less it copies. So a binary search finds
    // where the two resources meet.
    const bool falls = first.costs.copy_ns < last.costs.copy_ns;
    uint32_t low = 1, high = count;
    while (high - low > kScanned) {
        const uint32_t middle = low + (high - low) / 2;
        const Costs costs = crossing.costs_at(middle);
        (falls == !is_light(costs, model) ? low : high) = middle;
    }
    low -= std::min(low - 1, kScanned / 2);
    high = std::min(count, high + kScanned / 2);
    double least = best_.costs.overlapped_ns(model);
    uint32_t where = 0;
    for (uint32_t cell = low; cell < high; ++cell) {
        const double ns = crossing.costs_at(cell).overlapped_ns(model);
        if (ns < least) {
            least = ns;
            where = cell;
        }
    }
    if (where == 0) return;
    tried_.way.clear();
    for (Leg leg : first.way) {
        leg.last = std::min(leg.last, where);
        if (leg.first < where) append(leg, &tried_.way);
    }
    for (Leg leg : last.way) {
        leg.first = std::max(leg.first, where);
        if (leg.last > where) append(leg, &tried_.way);
    }
    tried_.costs = costs_of(cells, model, tried_.way);
    keep_if_better(model, tried_);
}

}  // namespace penstock::planner
