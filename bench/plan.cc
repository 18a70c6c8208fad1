// Question: are plans the best there are, cheap to make, and do they take the time they predict?
//
// Exact: random requests of 1 to 20 pages with random costs, alignment, ends, states and largest
// transfer, planned and searched by brute force; share where the costs agree. Time: plans for
// random residency of 8 MiB with costs calibrated here. Quality: SPIN's greedy rule against exact
// (over pages), the overlapped plan against its lower bound. Predicted: the same vectors made real
// (8 requests lie side by side in a file, the cache state checked before each round) and read by
// penstock::File on one thread, as calibrated here by penstock::calibrate(); what the report says
// its plan expected against the time that it says reading took, less that of looking and planning:
// each request against the median of 3 runs, 1 - mean relative error. Each prediction is made
// before its request is run, by a model that follows what the reads before it took. Without
// io_uring or direct I/O there is no such row, and the others take the model's defaults. Not
// measured: devices, more than one thread that copies.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "bench/harness/cache_state.h"
#include "bench/harness/huge_buffer.h"
#include "bench/harness/report.h"
#include "bench/plan/calibration.h"
#include "bench/plan/vectors.h"
#include "penstock/file.h"
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
constexpr uint64_t kRequestsInFile = 8;
constexpr int kRuns = 3, kSetTries = 5;
static_assert(kRuns == 3);

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
    row.verified = true;
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

// Requests on a real file.
class Prediction {
public:
    Prediction(const TestFile& file, const FileOptions& options)
        : cache_(file),
          file_(need(File::open(file.path(), {}, options), "open")),
          buffer_(kVectorSize) {}

    void measure(Report& report, const Arguments& arguments) {
        const uint64_t rounds = arguments.smoke ? 1 : 5000 / kRequestsInFile;
        // Pages just written lie in folios that let go of none but all of theirs.
        cache_.set(PageMap(cache_.pages(), 0));
        for (uint64_t round = 0; round < rounds; ++round) run_round();
        Row row;
        row.name = "predicted-time";
        row.against = "measured-time";
        row.unit = "share";
        row.bytes = errors_.size() * kVectorSize;
        std::vector<double> sorted = errors_;
        std::sort(sorted.begin(), sorted.end());
        double sum = 0;
        for (const double error : sorted) sum += error;
        const double mean = sum / static_cast<double>(sorted.size());
        const double bias = bias_ / static_cast<double>(sorted.size());
        row.pairs = {{std::max(0.0, 1 - mean), 1.0}};
        row.verified = wrong_words_ == 0 && wrong_states_ == 0;
        const std::string wrong = row.verified
                                      ? ""
                                      : std::to_string(wrong_words_) + " wrong words, " +
                                            std::to_string(wrong_states_) + " wrong cache states; ";
        row.note = wrong + std::to_string(errors_.size()) +
                   " requests of 8 MiB, each against the median of " + std::to_string(kRuns) +
                   " runs; median relative error " + std::to_string(sorted[sorted.size() / 2]) +
                   ", prediction less truth is on average " + std::to_string(bias) +
                   " of it; the first run of a request differs from the mean of its other two by " +
                   std::to_string(repeat_ / static_cast<double>(sorted.size())) +
                   "; of all bytes " + std::to_string(direct_bytes_ * 100 / kRuns / row.bytes) +
                   " % direct; destination " +
                   std::to_string(static_cast<int>(buffer_.huge_share() * 100)) +
                   " % on huge pages";
        report.add(std::move(row));
    }

private:
    void run_round() {
        PageMap wanted(cache_.pages(), 0);
        for (uint64_t i = 0; i < kRequestsInFile; ++i) {
            for (const extent::ResidencyRun& run : random_vector(prng_, i * kVectorSize)) {
                if (run.state != extent::Residency::kCached) continue;
                const uint64_t first = run.range.offset / kPageSize;
                std::fill_n(wanted.begin() + static_cast<ptrdiff_t>(first),
                            run.range.size / kPageSize, 1);
            }
        }
        std::array<std::array<double, kRuns>, kRequestsInFile> measured{};
        std::array<double, kRequestsInFile> predicted{};
        for (size_t run = 0; run < kRuns; ++run) {
            wrong_states_ += set_cache(wanted) ? 0 : 1;
            for (size_t i = 0; i < kRequestsInFile; ++i) {
                const penstock::Report told = read(i * kVectorSize);
                if (run == 0) predicted[i] = static_cast<double>(told.predicted_ns);
                measured[i][run] = static_cast<double>(told.read_ns - told.plan_ns);
                direct_bytes_ += told.bytes_by(Route::kDirect);
            }
        }
        for (size_t i = 0; i < kRequestsInFile; ++i) {
            const double others = (measured[i][1] + measured[i][2]) / 2;
            repeat_ += std::abs(measured[i][0] - others) / others;
            std::sort(measured[i].begin(), measured[i].end());
            const double truth = measured[i][kRuns / 2];
            errors_.push_back(std::abs(predicted[i] - truth) / truth);
            bias_ += (predicted[i] - truth) / truth;
        }
    }

    // What a read brought in by the way lies in folios that let go of all of theirs or of none, and
    // the kernel may take idle pages away in the middle of it.
    bool set_cache(const PageMap& wanted) {
        for (int tries = 0; tries < kSetTries; ++tries) {
            if (cache_.set(wanted)) return true;
            (void)cache_.set(PageMap(cache_.pages(), 0));
        }
        return false;
    }

    // By the file's one thread: a caller that waits for read() would be another.
    penstock::Report read(uint64_t offset) {
        const Future future = need(file_.pread(buffer_.data(), kVectorSize, offset), "read");
        if (need(future.result(), "read") != kVectorSize) fail("a read was short");
        wrong_words_ += count_wrong_and_wipe(buffer_.data(), offset, kVectorSize);
        return future.report();
    }

    CacheState cache_;
    File file_;
    HugeBuffer buffer_;
    base::Prng prng_{4};
    std::vector<double> errors_;  // relative
    double bias_ = 0;             // sum of them with their signs
    double repeat_ = 0;           // sum of: the first run against the mean of the two others
    uint64_t wrong_words_ = 0, wrong_states_ = 0, direct_bytes_ = 0;
};

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
    if (arguments.only != "=exact") calibrated.emplace(arguments.smoke ? 0.5 : 10);
    if (calibrated.has_value()) {
        describe(report, calibrated->costs());
        model = calibrated->model();
    }
    measure_time(report, arguments, model);
    measure_quality(report, arguments, model);
    if (wanted(arguments, "predicted-time") && calibrated.has_value() &&
        calibrated->costs().direct.measured && calibrated->offers_uring()) {
        const TestFile file(kRequestsInFile * kVectorSize);
        Prediction(file, calibrated->options()).measure(report, arguments);
    }
    report.write();
    return 0;
}

}  // namespace penstock::bench

int main(int argc, char** argv) {
    return penstock::bench::run_all(
        penstock::bench::parse_arguments(argc, argv, penstock::bench::kQuestion));
}
