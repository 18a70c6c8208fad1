#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "bench/preempt/child.h"
#include "bench/preempt/figures.h"
#include "bench/preempt/rig.h"
#include "preemption/hotspot.h"
#include "preemption/pathfinder.h"
#include "preemption/product.h"
#include "preemption/srad.h"

namespace penstock::bench {
namespace {

using workloads::Part;
using workloads::ProductForm;
using workloads::Site;
using Made = Result<std::unique_ptr<workloads::Workload>>;

// Names the workload, the mode and the number of runs to a process whose instructions are counted.
constexpr const char* kCountedVariable = "PENSTOCK_BENCH_COUNTED";
constexpr const char* kNoLaunches = "no-launches";  // a mode: all but the launches
// The instructions of a run are those of a process with so many more runs than another.
constexpr unsigned kRunsMore = 4;

struct Counted {
    const char* name;
    std::function<Made(const Site&)> make;
};

Made small_product(const Site& site, ProductForm form) {
    return make_product(site, {.form = form, .order = 128, .repeat = 4});
}

const std::vector<Counted>& all_counted() {
    static const std::vector<Counted> all = {
        {"product-1-read", [](const Site& s) { return small_product(s, ProductForm::kOneRead); }},
        {"product-8-reads",
         [](const Site& s) { return small_product(s, ProductForm::kEightReads); }},
        {"product-8-reads-shared",
         [](const Site& s) { return small_product(s, ProductForm::kEightReadsShared); }},
        {"srad",
         [](const Site& s) {
             return make_srad(s, {.reads_file = true,
                                  .tile_columns = 4,
                                  .tile_rows = 4,
                                  .blocks = 4,
                                  .iterations = 1});
         }},
        {"pathfinder",
         [](const Site& s) {
             return make_path(s, {.reads_file = true, .columns = 500, .rows = 41});
         }},
        {"hotspot",
         [](const Site& s) {
             return make_heat(s, {.point = workloads::HeatPoint::kBetweenSteps,
                                  .columns = 48,
                                  .rows = 48,
                                  .steps = 4});
         }},
    };
    return all;
}

// Instructions of a process that runs a workload `runs` times in a mode; 0: they could not be
// counted.
double count_process(const std::string& workload, const char* mode, unsigned runs) {
    const std::string output = run_self(kCountedVariable,
                                        workload + " " + mode + " " + std::to_string(runs),
                                        "valgrind --tool=callgrind --callgrind-out-file=/dev/null");
    const size_t at = output.find("Collected : ");
    return at == std::string::npos ? 0 : std::strtod(output.c_str() + at + 12, nullptr);
}

double count_runs(const std::string& workload, const char* mode) {
    const double few = count_process(workload, mode, 1);
    const double many = count_process(workload, mode, 1 + kRunsMore);
    return few == 0 || many <= few ? 0 : (many - few) / kRunsMore;
}

}  // namespace

bool run_counted() {
    const char* words = std::getenv(kCountedVariable);
    if (words == nullptr) return false;
    std::array<char, 64> workload{}, mode_name{};
    unsigned runs = 0;
    if (std::sscanf(words, "%63s %63s %u", workload.data(), mode_name.data(), &runs) != 3)
        fail(std::string(kCountedVariable) + ": WORKLOAD MODE RUNS");
    const auto is = [&](const char* mode) { return mode_name.data() == std::string(mode); };
    const WaitMode mode = is(name(WaitMode::kNever)) ? WaitMode::kNever : WaitMode::kSpin;
    for (const Counted& counted : all_counted()) {
        if (counted.name != std::string(workload.data())) continue;
        MixRig rig("cpu", 1, kMemoryDisk);
        rig.add(counted.make(rig.site()), counted.name);
        // The first run fills the page cache. Then nothing waits, so that each run is alike.
        if (!rig.repeat(runs, Part::kAll, mode, !is(kNoLaunches))) fail("a result is wrong");
    }
    return true;
}

void measure_instructions(Report& report, const Arguments& arguments) {
    if (!wanted(arguments, "point-never-taken-instructions") || !has_mode(WaitMode::kNever)) return;
    struct Count {
        double never, original;
        std::string text;
    };
    std::vector<Count> counts;
    for (const Counted& counted : all_counted()) {
        // What the host does round the launches is the same in both modes, and not counted.
        const double host = count_runs(counted.name, kNoLaunches);
        const double original = count_runs(counted.name, name(WaitMode::kSpin)) - host;
        const double never = count_runs(counted.name, name(WaitMode::kNever)) - host;
        if (host == 0 || original <= 0 || never <= 0) {
            report.describe("left out", std::string("instructions of ") + counted.name +
                                            ": valgrind did not count them");
            continue;
        }
        char text[80];
        std::snprintf(text, sizeof text, "%s %.0f for %.0f", counted.name, never, original);
        counts.push_back({never, original, text});
        if (arguments.smoke) break;
    }
    if (counts.empty()) return;
    std::ranges::sort(counts, {}, [](const Count& c) { return c.never / c.original; });
    Row row;
    row.name = "point-never-taken-instructions";
    row.against = "original";
    row.unit = "instructions";
    const Count& middle = counts[counts.size() / 2];  // of an even number the worse of two
    row.pairs = {{middle.never, middle.original}};
    row.verified = true;  // each process has compared its results
    row.note = "of one run with all pages cached; the median workload; all: ";
    for (const Count& count : counts) row.note += count.text + "; ";
    report.add(std::move(row));
}

}  // namespace penstock::bench
