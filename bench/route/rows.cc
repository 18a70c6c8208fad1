#include "bench/route/rows.h"

#include <algorithm>
#include <cstdio>
#include <functional>

namespace penstock::bench {
namespace {

constexpr size_t kWorstShown = 8;

bool is_mixed_1m(const Cell& cell) {
    return cell.pattern.mixed() && cell.pattern.run_size > kCachePage &&
           cell.request_size >= base::kMiB && !cell.capped;
}

constexpr Aggregate kAggregates[] = {
    {"auto-geomean", "best-single-mode", [](const Cell&) { return true; }, false},
    {"auto-worst-cell", "best-single-mode", [](const Cell&) { return true; }, true},
    {"auto-mixed-1m", "best-single-mode", is_mixed_1m, false},
    {"auto-mixed-small", "best-single-mode",
     [](const Cell& cell) { return cell.pattern.mixed() && !is_mixed_1m(cell); }, false},
    {"auto-hot", "cached",
     [](const Cell& cell) { return cell.pattern.hot() && cell.request_size >= 64 * base::kKiB; },
     true},
};

bool against_cached(const Aggregate& aggregate) {
    return std::string(aggregate.against) == "cached";
}

const Pairs& pairs_of(const Aggregate& aggregate, const CellResult& result) {
    return against_cached(aggregate) ? result.against_cached : result.judged;
}

std::string gain_text(double gain) {
    char text[16];
    std::snprintf(text, sizeof text, "%.3f", gain);
    return text;
}

// Returns the cells by median gain, the worst first.
std::vector<const CellResult*> sorted(const Aggregate& aggregate,
                                      const std::vector<CellResult>& results) {
    std::vector<const CellResult*> order;
    for (const CellResult& result : results)
        if (aggregate.holds(result.cell)) order.push_back(&result);
    std::sort(order.begin(), order.end(), [&](const CellResult* a, const CellResult* b) {
        return median_gain(pairs_of(aggregate, *a)) < median_gain(pairs_of(aggregate, *b));
    });
    return order;
}

std::string list_worst(const Aggregate& aggregate, const std::vector<const CellResult*>& order) {
    std::string text;
    for (size_t i = 0; i < std::min(order.size(), kWorstShown); ++i) {
        const CellResult& result = *order[i];
        text += (i == 0 ? "" : ", ") + name(result.cell) + " " +
                gain_text(median_gain(pairs_of(aggregate, result)));
        if (!against_cached(aggregate)) text += std::string(" (") + result.modes[result.best] + ")";
    }
    return text;
}

}  // namespace

std::span<const Aggregate> aggregates() { return kAggregates; }

void add_rows(Report& report, const CellResult& result) {
    Row row;
    row.name = name(result.cell);
    row.bytes = result.bytes;
    row.verified = result.verified;
    row.cpu_seconds = result.cpu_seconds;
    for (size_t mode = 0; mode < result.modes.size(); ++mode) {
        row.against = result.modes[mode];
        row.pairs = result.first_half[mode];
        row.note = "first half of the pairs";
        report.add(row);
    }
    row.against = "best-single-mode";
    row.pairs = result.judged;
    row.note = std::string(result.modes[result.best]) + "; the other half; auto: " + result.routes;
    report.add(row);
}

void add_aggregates(Report& report, const Arguments& arguments,
                    const std::vector<CellResult>& results) {
    for (const Aggregate& aggregate : kAggregates) {
        const std::vector<const CellResult*> order = sorted(aggregate, results);
        if (order.empty()) continue;
        Row row;
        row.name = aggregate.name;
        row.against = aggregate.against;
        row.verified = true;
        for (const CellResult* cell : order) row.verified = row.verified && cell->verified;
        if (aggregate.worst) {
            row.pairs = pairs_of(aggregate, *order[0]);
            row.bytes = order[0]->bytes;
            row.cpu_seconds = order[0]->cpu_seconds;
        } else {
            std::vector<const Pairs*> pairs;
            for (const CellResult* cell : order) pairs.push_back(&pairs_of(aggregate, *cell));
            row.pairs = geometric_means(pairs);
            for (const CellResult* cell : order) row.bytes += cell->bytes;
            for (const CellResult* cell : order) row.cpu_seconds += cell->cpu_seconds;
        }
        row.note = std::to_string(order.size()) + " cells; worst: " + list_worst(aggregate, order);
        if (arguments.only.empty() || wanted(arguments, row.name)) report.add(std::move(row));
    }
}

}  // namespace penstock::bench
