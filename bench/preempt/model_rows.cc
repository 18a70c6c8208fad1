// Figures 1 and 2 of seed 001, and how well the model predicts. The constants come from other runs
// in another process; I and C of a point are measured beside its whole runs.
#include <algorithm>
#include <cstdio>
#include <limits>

#include "bench/preempt/figures.h"
#include "bench/preempt/points.h"
#include "bench/preempt/rounds.h"

namespace penstock::bench {
namespace {

// I is about 100 ms at each. None of them was used to find a constant.
constexpr PointShape kPoints[] = {
    {1, 60, 2, 24 << 10, 0.75}, {1, 40, 3, 16 << 10, 1.5}, {1, 30, 5, 24 << 10, 0.4},
    {1, 20, 8, 24 << 10, 1},    {0, 40, 1, 64 << 10, 1.5}, {0, 30, 2, 48 << 10, 0.75},
    {0, 20, 4, 48 << 10, 1},    {0, 40, 5, 16 << 10, 2},
};
constexpr PointShape kCurve{1, 50, 1, 32 << 10, 1};  // I is 50 ms
constexpr double kRatios[] = {0.125, 0.25, 0.5, 1, 2, 4, 8};
constexpr double kDelaysUs[] = {0, 10, 100, 1000};

std::string short_number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return text;
}

// Whether a row was asked for whose name begins with `name` and ends with one of `ends`, or with
// nothing more.
bool wanted_with(const Arguments& arguments, const std::string& name,
                 std::initializer_list<const char*> ends) {
    return wanted(arguments, name) || std::ranges::any_of(ends, [&](const char* end) {
               return wanted(arguments, name + end);
           });
}

PointShape of_size(const Arguments& arguments, PointShape shape) {
    if (arguments.smoke) shape.blocks = std::max(2u, shape.blocks / 12);
    return shape;
}

// The formula alone, in units of I.
void add_formula(Report& report, const Arguments& arguments) {
    for (const double beta : {1.0, 4.0, std::numeric_limits<double>::infinity()}) {
        for (const double ratio : {0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0}) {
            Row row;
            row.name = std::string(ratio > 4 ? "figure-2" : "figure-1") + "-beta-" +
                       short_number(beta) + "-ratio-" + short_number(ratio);
            if (!wanted(arguments, row.name)) continue;
            row.against = "blocking";
            row.simulated = true;
            row.pairs = {{(1 + ratio) / seed_gain(ratio, beta), 1 + ratio}};
            row.note = "the formula of seed 001, in units of I";
            report.add(std::move(row));
        }
    }
}

void add_point(Report& report, const std::string& name, const Point& point) {
    report.add(point.place(name + "-compute"));
    report.add(point.row(name + "-spin", "prediction", 0, point.predictions(0)));
    if (!has_mode(WaitMode::kAdaptive)) return;
    report.add(point.row(name, "prediction", 1, point.predictions(1)));
    report.add(point.row(name, "spin", 1, point.seconds(0)));
}

std::vector<PointRun> spin_and_ours() {
    std::vector<PointRun> runs{{WaitMode::kSpin}};
    if (has_mode(WaitMode::kAdaptive)) runs.push_back({WaitMode::kAdaptive});
    return runs;
}

std::string emulation_name(const PointRun& run) {
    return "emulation-delay-" + short_number(run.dispatch_delay_us) +
           (run.mode == WaitMode::kSeedPolicy ? "-seed-policy" : "");
}

// What launches cost that take longer: both policies, and spinning.
void add_emulation(Report& report, const Arguments& arguments, const Constants& constants,
                   base::Prng* prng) {
    Point point(arguments.device, constants, of_size(arguments, kPoints[1]));
    std::vector<PointRun> runs{{WaitMode::kSpin}};
    for (const double delay : kDelaysUs) {
        runs.push_back({WaitMode::kAdaptive, delay});
        runs.push_back({WaitMode::kSeedPolicy, delay});
    }
    std::erase_if(runs, [&](const PointRun& run) {
        return run.mode != WaitMode::kSpin && !wanted(arguments, emulation_name(run));
    });
    if (runs.size() == 1) return;
    point.take("emulation-delay", some_rounds(arguments), prng, runs);
    for (size_t i = 1; i < runs.size(); ++i) {
        const std::string name = emulation_name(runs[i]);
        for (const bool predicted : {false, true}) {
            Row row = point.row(name, predicted ? "prediction" : "spin", i,
                                predicted ? point.predictions(i) : point.seconds(0));
            row.note = "emulation: each launch of workers takes " +
                       short_number(runs[i].dispatch_delay_us) + " us more on the host; " +
                       row.note;
            report.add(std::move(row));
        }
    }
}

}  // namespace

void measure_model(Report& report, const Arguments& arguments, const Constants& constants,
                   const Watch& watch) {
    add_formula(report, arguments);
    base::Prng prng{4};
    for (const double ratio : kRatios) {
        const std::string name = "curve-" + short_number(ratio);
        if (!wanted_with(arguments, name, {"-spin", "-compute"}) || watch.past()) continue;
        PointShape shape = of_size(arguments, kCurve);
        shape.ratio = ratio;
        Point point(arguments.device, constants, shape);
        point.take(name, few_rounds(arguments), &prng, spin_and_ours());
        add_point(report, name, point);
    }
    unsigned number = 0;
    for (const PointShape& shape : kPoints) {
        const std::string name = "model-" + std::to_string(++number);
        if (!wanted_with(arguments, name, {"-spin", "-compute"}) || watch.past()) continue;
        Point point(arguments.device, constants, of_size(arguments, shape));
        point.take(name, some_rounds(arguments), &prng, spin_and_ours());
        add_point(report, name, point);
    }
    if (has_mode(WaitMode::kAdaptive) && !watch.past())
        add_emulation(report, arguments, constants, &prng);
}

}  // namespace penstock::bench
