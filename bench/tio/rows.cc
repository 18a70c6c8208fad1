#include "bench/tio/rows.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

namespace penstock::bench {
namespace {

constexpr size_t kWorstShown = 10;
constexpr const char* kBest = "best-mechanism";

constexpr TioAggregate kAggregates[] = {
    {"auto-geomean", [](const TioCell&) { return true; }},
    {"auto-cached-50",
     [](const TioCell& cell) {
         return cell.mixed() && cell.random && cell.size >= 512 * base::kKiB;
     }},
};

std::string decimals(double value, const char* format) {
    char text[32];
    std::snprintf(text, sizeof text, format, value);
    return text;
}

// Returns "CPU 3.21 ms a run, clwrite 4.56".
std::string cpu_text(const TioResult& result, size_t side) {
    const auto per_run = [&](size_t of) {
        return decimals(1e3 * result.cpu_seconds[of] / result.runs[of], "%.3g");
    };
    return "CPU " + per_run(result.runs.size() - 1) + " ms a run, " + result.mechanisms[side] +
           " " + per_run(side);
}

// Returns the cells of the row by median gain, the worst first.
std::vector<const TioResult*> sorted(const TioAggregate& aggregate,
                                     const std::vector<TioResult>& results) {
    std::vector<const TioResult*> order;
    for (const TioResult& result : results)
        if (aggregate.holds(result.cell)) order.push_back(&result);
    std::sort(order.begin(), order.end(), [](const TioResult* a, const TioResult* b) {
        return median_gain(a->judged) < median_gain(b->judged);
    });
    return order;
}

std::string list_worst(const std::vector<const TioResult*>& order) {
    std::string text;
    for (size_t i = 0; i < std::min(order.size(), kWorstShown); ++i) {
        const TioResult& result = *order[i];
        text += (i == 0 ? "" : ", ") + name(result.cell) + " " +
                decimals(median_gain(result.judged), "%.3f") + " (" +
                result.mechanisms[result.choice.best] + ")";
    }
    return text;
}

}  // namespace

std::span<const TioAggregate> tio_aggregates() { return kAggregates; }

void add_rows(Report& report, const TioResult& result, bool simulated) {
    Row row;
    row.name = name(result.cell);
    row.bytes = result.bytes;
    row.verified = result.verified;
    row.simulated = simulated;
    row.cpu_seconds = result.cpu_seconds.back();
    for (size_t side = 0; side < result.choice.pairs.size(); ++side) {
        row.against = result.mechanisms[side];
        row.pairs = result.choice.pairs[side];
        row.note = cpu_text(result, side) + "; first half of the pairs";
        report.add(row);
    }
    row.against = kBest;
    row.pairs = result.judged;
    row.note = std::string(result.mechanisms[result.choice.best]) + "; the other half; " +
               cpu_text(result, result.choice.best) + "; auto: " + result.routes;
    report.add(row);
}

void add_aggregates(Report& report, const Arguments& arguments,
                    const std::vector<TioResult>& results, bool simulated) {
    for (const TioAggregate& aggregate : kAggregates) {
        const std::vector<const TioResult*> order = sorted(aggregate, results);
        if (order.empty()) continue;
        if (!arguments.only.empty() && !wanted(arguments, aggregate.name)) continue;
        Row row;
        row.name = aggregate.name;
        row.against = kBest;
        row.verified = true;
        row.simulated = simulated;
        std::vector<const Pairs*> pairs;
        for (const TioResult* cell : order) {
            row.verified = row.verified && cell->verified;
            row.bytes += cell->bytes;
            row.cpu_seconds += cell->cpu_seconds.back();
            pairs.push_back(&cell->judged);
        }
        row.pairs = geometric_means(pairs);
        row.note = std::to_string(order.size()) + " cells; worst: " + list_worst(order);
        report.add(std::move(row));
    }
}

}  // namespace penstock::bench
