#include "planner/overlapped.h"

#include <algorithm>

namespace penstock::planner {
namespace {

// A pass over the cells takes about this long, so it has to be able to gain that much.
constexpr double kPassNsPerCell = 8;
constexpr int kPassesMax = 16;

double pass_ns(const Cells& cells) { return kPassNsPerCell * static_cast<double>(cells.count()); }

double storage_ns(const Costs& costs, const CostModel& model) {
    return costs.direct_ns + costs.shared_ns + costs.start_ns(model);
}

}  // namespace

void OverlappedWay::keep_if_better(const CostModel& model, const Way& way) {
    if (way.costs.overlapped_ns(model) < best_.costs.overlapped_ns(model)) best_ = way;
}

void OverlappedWay::find(const Cells& cells, const CostModel& model, CheapestWay& way,
                         std::vector<Step>* steps, double* bound_ns) {
    direct_all(cells, &light_.steps);
    light_.costs = costs_of(cells, model, light_.steps);
    copy_all(cells, &heavy_.steps);
    heavy_.costs = costs_of(cells, model, heavy_.steps);
    copies_ = heavy_.costs;
    best_ = light_;
    keep_if_better(model, heavy_);
    bound_ns_ = 0;
    if (light_.costs.copy_ns < storage_ns(light_.costs, model) &&
        heavy_.costs.copy_ns > storage_ns(heavy_.costs, model)) {
        close_in(cells, model, way);
        if (best_.costs.overlapped_ns(model) > bound_ns_ + pass_ns(cells)) {
            cross(cells, model, light_, heavy_);
            cross(cells, model, heavy_, light_);
        }
    } else {
        try_weights(cells, model, way, 0.5);
    }
    *steps = best_.steps;
    *bound_ns = std::min(bound_ns_, best_.costs.overlapped_ns(model));
}

void OverlappedWay::try_weights(const Cells& cells, const CostModel& model, CheapestWay& way,
                                double copy) {
    const double direct = 1 - copy;
    const double least = way.find(cells, model, {copy, direct, direct}, &tried_.steps);
    tried_.costs = costs_of(cells, model, tried_.steps);
    keep_if_better(model, tried_);
    // Every plan but the one that only copies has direct_start_ns besides. What both resources do,
    // weighted, is no more than the later of them.
    bound_ns_ = std::max(bound_ns_,
                         std::min(least + direct * model.direct_start_ns,
                                  copy * copies_.copy_ns + direct * storage_ns(copies_, model)));
}

void OverlappedWay::close_in(const Cells& cells, const CostModel& model, CheapestWay& way) {
    for (int pass = 0; pass < kPassesMax; ++pass) {
        // Normal to the line through both: on it lie the pairs that are as good as they are.
        const double fall = storage_ns(light_.costs, model) - storage_ns(heavy_.costs, model);
        const double rise = heavy_.costs.copy_ns - light_.costs.copy_ns;
        if (fall <= 0 || rise <= 0) return;
        const double copy = fall / (fall + rise);
        const auto weighted = [&](const Costs& costs) {
            return copy * costs.copy_ns + (1 - copy) * storage_ns(costs, model);
        };
        try_weights(cells, model, way, copy);
        if (best_.costs.overlapped_ns(model) <= bound_ns_ + pass_ns(cells)) return;
        if (weighted(tried_.costs) >= weighted(light_.costs) * (1 - 1e-9)) return;
        std::swap(tried_.costs.copy_ns < storage_ns(tried_.costs, model) ? light_ : heavy_, tried_);
    }
}

void OverlappedWay::cross(const Cells& cells, const CostModel& model, const Way& first,
                          const Way& last) {
    const size_t count = cells.count();
    prefix_.resize(count + 1);
    CostsSoFar before(cells, model);
    for (size_t i = 0; i < count; ++i) {
        prefix_[i] = before.costs();
        before.add(i, first.steps[i] == Step::kCopy, first.steps[i] == Step::kBegin);
    }
    CostsSoFar behind(cells, model);
    double least = best_.costs.overlapped_ns(model);
    size_t from = 0;  // where `last` takes over; 0: nowhere
    for (size_t i = count - 1; i > 0; --i) {
        behind.add(i, last.steps[i] == Step::kCopy,
                   i + 1 == count || last.steps[i + 1] != Step::kGoOn);
        Costs both = prefix_[i];
        both.copy_ns += behind.costs().copy_ns;
        both.direct_ns += behind.costs().direct_ns;
        both.shared_ns += behind.costs().shared_ns;
        both.transfers += behind.costs().transfers;
        const double ns = both.overlapped_ns(model);
        if (ns < least) {
            least = ns;
            from = i;
        }
    }
    if (from == 0) return;
    tried_.steps.assign(first.steps.begin(), first.steps.begin() + static_cast<ptrdiff_t>(from));
    tried_.steps.insert(tried_.steps.end(), last.steps.begin() + static_cast<ptrdiff_t>(from),
                        last.steps.end());
    if (tried_.steps[from] == Step::kGoOn) tried_.steps[from] = Step::kBegin;
    tried_.costs = costs_of(cells, model, tried_.steps);
    keep_if_better(model, tried_);
}

}  // namespace penstock::planner
