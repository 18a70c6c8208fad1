// Question: are plans optimal and cheap to make, and do they take the time that they predict?
//
// Exact: random requests of 1 to 20 pages, with random costs, alignment, ends, states and largest
// transfer, are planned, and searched by brute force; the figure is the share with equal costs.
// Time: plans for random residency of 8 MiB, with costs calibrated here. Quality: SPIN's greedy
// rule against the exact plan (over pages), and the overlapped plan against its lower bound.
// Predicted: the same vectors as real files (bench/plan/prediction.h). Without io_uring or direct
// I/O this row is missing, and the others use the model's defaults. Not measured: devices, more
// than one thread that copies.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "bench/harness/report.h"
#include "bench/plan/calibration.h"
#include "bench/plan/prediction.h"
#include "bench/plan/vectors.h"
#include "planner/brute_force_fixture.h"

namespace penstock::bench {
namespace {

using planner::Algorithm;
using planner::CostModel;
using planner::Plan;
using planner::Planner;

constexpr const char* kQuestion =
    "are plans the best there are, cheap to make, and do they take the time they predict?";
constexpr double kBudgetNs = 10;

planner::Request request_for(const Runs& runs) {
    planner::Request request;
    request.range = {runs.front().range.offset, kVectorSize};
    request.residency = runs;
    request.direct = {Route::kDirect, kPageSize, 512};
    request.memory = request.range.offset;
    return request;
}

void measure_exact(Report& report, const Arguments& arguments) {
    const uint64_t count = arguments.smoke ? 3000 : 100000;
    uint64_t equal = 0;
    for (uint64_t seed = 1; seed <= count; ++seed) {
        base::Prng prng(seed);
        planner::brute_force::Case one(prng, 20);
        Planner exact(one.options);
        const double ns = need(exact.plan(one.request, one.model), "plan").predicted_ns;
        const double best = planner::brute_force::search(one.request, one.options, one.model)
                                .serial_ns;
        equal += std::abs(ns - best) <= best * 1e-9 ? 1 : 0;
    }
    Row row;
    row.name = "exact";
    row.against = "brute-force";
    row.unit = "share";
    row.pairs = {{static_cast<double>(equal) / static_cast<double>(count), 1.0}};
    row.verified = equal == count;
    row.note = std::to_string(equal) + " of " + std::to_string(count) +
               " random requests of 1 to 20 pages cost the same, to 1e-9";
    report.add(std::move(row));
}

struct Way {
    const char* name;
    planner::Options options;
    const char* note;
};

void measure_time(Report& report, const Arguments& arguments, const CostModel& model) {
    base::Prng prng(2);
    std::vector<Runs> vectors(arguments.smoke ? 20 : 500);
    for (Runs& runs : vectors) runs = random_vector(prng, 0);
    const Way ways[] = {
        {"ns-per-page", {Algorithm::kExact}, "exact over cells, as the library cuts them"},
        {"ns-per-page-every-page",
         {Algorithm::kExact, extent::Residency::kMissing, kPageSize, false},
         "exact over pages"},
        {"ns-per-page-overlapped", {Algorithm::kOverlapped}, "the library's default"},
        {"ns-per-page-greedy", {Algorithm::kGreedy}, "SPIN's rule over the same cells"}};
    for (const Way& way : ways) {
        if (!wanted(arguments, way.name)) continue;
        Planner planner(way.options);
        planner.reserve(kVectorSize);
        uint64_t bytes = 0;
        Row row;
        row.name = way.name;
        row.against = "budget-10-ns";
        row.unit = "ns";
        row.pairs = take_pairs(
            arguments.pairs,
            [&] {
                bytes = 0;
                const double seconds = timed([&] {
                    for (const Runs& runs : vectors) {
                        const Plan plan = planner.plan(request_for(runs), model).value();
                        bytes += plan.transfers.back().range.end();
                    }
                });
                return seconds * 1e9 / static_cast<double>(vectors.size() * kVectorPages);
            },
            [] { return kBudgetNs; }, &row.cpu_seconds);
        row.verified = bytes == vectors.size() * kVectorSize;
        row.note = std::string(way.note) + "; " + std::to_string(vectors.size()) +
                   " random vectors of 8 MiB, residency to transfers";
        report.add(std::move(row));
    }
}

void measure_quality(Report& report, const Arguments& arguments, const CostModel& model) {
    const auto any_wanted = [&](auto... names) { return (wanted(arguments, names) || ...); };
    if (!any_wanted("greedy-quality", "coarse-quality", "overlapped-quality")) return;
    const uint64_t count = arguments.smoke ? 100 : 20000;
    base::Prng prng(3);
    Planner exact({Algorithm::kExact, extent::Residency::kMissing, kPageSize, false});
    Planner greedy({Algorithm::kGreedy, extent::Residency::kMissing, kPageSize, false});
    Planner coarse({Algorithm::kExact});
    Planner overlapped;
    double greedy_sum = 0, greedy_worst = 1, coarse_sum = 0, bound_sum = 0, bound_worst = 1;
    for (uint64_t i = 0; i < count; ++i) {
        const Runs runs = random_vector(prng, 0);
        const planner::Request request = request_for(runs);
        const double best = exact.plan(request, model).value().predicted_ns;
        const double rule = best / greedy.plan(request, model).value().predicted_ns;
        greedy_sum += rule;
        greedy_worst = std::min(greedy_worst, rule);
        coarse_sum += best / coarse.plan(request, model).value().predicted_ns;
        const Plan plan = overlapped.plan(request, model).value();
        const double bound = plan.bound_ns > 0 ? plan.bound_ns / plan.predicted_ns : 1;
        bound_sum += bound;
        bound_worst = std::min(bound_worst, bound);
    }
    const auto add = [&](const char* name, const char* against, double sum,
                         const std::string& note) {
        if (!wanted(arguments, name)) return;
        Row row;
        row.name = name;
        row.against = against;
        row.unit = "share";
        row.pairs = {{sum / static_cast<double>(count), 1.0}};
        row.verified = true;
        row.note = note + std::to_string(count) + " random vectors of 8 MiB";
        report.add(std::move(row));
    };
    add("greedy-quality", "exact", greedy_sum,
        "over pages; worst " + std::to_string(greedy_worst) + "; ");
    add("coarse-quality", "exact", coarse_sum, "exact over cells against exact over pages; ");
    add("overlapped-quality", "lower-bound", bound_sum,
        "over cells; worst " + std::to_string(bound_worst) + "; ");
}

void describe(Report& report, const Calibration& costs) {
    const auto quality = [](const CalibratedRoute& one) {
        if (!one.measured) return "not measured: " + one.reason;
        return "R2 " + std::to_string(one.r_squared) + ", mean relative error " +
               std::to_string(one.error_mean);
    };
    const auto line = [](const CalibratedRoute& one) {
        return std::to_string(one.ns_once) + " ns + " + std::to_string(one.ns_per_byte) + " ns/B; ";
    };
    report.describe("direct", std::to_string(costs.direct.ns_once) + " ns up to " +
                                  std::to_string(costs.direct_cutoff) + " B, then " +
                                  std::to_string(costs.direct.ns_per_byte) + " ns/B; once " +
                                  std::to_string(costs.direct_start_ns) + " ns, to submit " +
                                  std::to_string(costs.direct_submit_ns) + " ns; " +
                                  quality(costs.direct));
    report.describe("cached", line(costs.cached) + quality(costs.cached));
    report.describe("buffered", line(costs.buffered) + quality(costs.buffered));
}

}  // namespace

int run_all(const Arguments& arguments) {
    Report report("plan", kQuestion, arguments);
    if (wanted(arguments, "exact")) measure_exact(report, arguments);
    CostModel model;
    std::optional<OwnCalibration> calibrated;
    if (arguments.only != "=exact") calibrated.emplace(arguments.smoke ? 0.5 : 10, arguments.smoke);
    if (calibrated.has_value()) {
        describe(report, calibrated->costs());
        model = calibrated->model();
    }
    measure_time(report, arguments, model);
    measure_quality(report, arguments, model);
    const bool predicts = wanted(arguments, "predicted-time") ||
                          wanted(arguments, "predicted-time-limit");
    if (predicts && calibrated.has_value() && calibrated->costs().direct.measured &&
        calibrated->offers_uring()) {
        measure_prediction(report, arguments, calibrated->options());
    }
    report.write();
    return 0;
}

}  // namespace penstock::bench

int main(int argc, char** argv) {
    return penstock::bench::run_all(
        penstock::bench::parse_arguments(argc, argv, penstock::bench::kQuestion));
}
