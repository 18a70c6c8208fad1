#include "bench/route/measure.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "bench/harness/routes.h"

namespace penstock::bench {
namespace {

constexpr unsigned kUringDepth = 16;
constexpr uint64_t kUringPiece = base::kMiB;
constexpr unsigned kDirectThreads = 4;  // they wait more than they work
constexpr uint64_t kDirectPiece = base::kMiB;
constexpr unsigned kHotPairsMin = 31;
constexpr unsigned kDirectPassesMax = 2;
// The block layer counts bytes by tenths of a second. After this rest it begins with the run.
constexpr auto kThrottleRest = std::chrono::milliseconds(200);

}  // namespace

struct RouteMeasurement::Run {
    const Cell& cell;
    std::vector<ReadRequest> requests;
    std::vector<PlainReads*> modes;
    CellResult& result;
};

RouteMeasurement::RouteMeasurement(const std::string& folder, unsigned threads, bool all_modes)
    : file_(kRouteFileSize + kRouteFileTail, folder),
      state_(file_),
      library_(need(File::open(file_.path()), "open")),
      destination_(kRouteFileSize),
      laid_{0, 1},  // no pattern
      wanted_(state_.pages(), 0) {
    modes_.push_back(
        {"cached", std::make_unique<CachedReads>(file_.path(), threads, 0), 0, UINT64_MAX});
    const bool uring = UringReads::offered();
    if (uring) {
        modes_.push_back({"direct",
                          std::make_unique<UringReads>(file_.path(), kUringDepth, kUringPiece),
                          all_modes ? 0 : kUringPiece, UINT64_MAX});
    }
    modes_.push_back({"direct-pread",
                      std::make_unique<DirectReads>(file_.path(), kDirectThreads, kDirectPiece), 0,
                      all_modes || !uring ? UINT64_MAX : kDirectPiece});
}

void RouteMeasurement::lay(const Pattern& pattern) {
    if (laid_ == pattern) return;
    wanted_ = cached_pages(pattern);
    state_.lay(wanted_);
    laid_ = pattern;
}

// Sets the state, wipes what earlier runs left, reads, checks.
template <class Read>
double RouteMeasurement::timed_run(Run& run, unsigned passes, Read read) {
    CellResult& result = run.result;
    result.verified = state_.set(wanted_) && result.verified;
    if (run.cell.capped) std::this_thread::sleep_for(kThrottleRest);
    const auto read_passes = [&](unsigned count) {
        for (; count > 0; --count) {
            for (const ReadRequest& request : run.requests) read(request);
        }
    };
    // After direct reads the destination is in no CPU's cache, and CPUs that waited are slow at
    // first. Without this, the next run would pay for it.
    if (run.cell.pattern.hot()) read_passes(1);
    const double seconds = timed([&] { read_passes(passes); });
    uint64_t wrong = 0;
    for (const ReadRequest& request : run.requests) {
        wrong += count_wrong_and_wipe(destination_.data() + request.place, request.offset,
                                      run.cell.request_size);
    }
    result.verified = result.verified && wrong == 0;
    return seconds;
}

double RouteMeasurement::run_auto(Run& run) {
    const double before = cpu_time();
    const double seconds = timed_run(run, passes(run.cell), [&](const ReadRequest& request) {
        const Result<uint64_t> got = library_.read(destination_.data() + request.place,
                                                   run.cell.request_size, request.offset);
        if (!got.ok()) need(got.status(), "read");
    });
    run.result.cpu_seconds += cpu_time() - before;
    return seconds;
}

double RouteMeasurement::run_mode(Run& run, PlainReads& reads) {
    // Past the cache a hot run would last seconds, so it has few passes and is scaled.
    const unsigned all = passes(run.cell);
    const unsigned few = &reads == run.modes[0] ? all : std::min(all, kDirectPassesMax);
    const double seconds = timed_run(run, few, [&](const ReadRequest& request) {
        reads.read(destination_.data() + request.place, run.cell.request_size, request.offset);
    });
    return seconds * all / few;
}

// Makes one run of auto with reports, which does not count. Each report must add up; together they
// say what was done.
void RouteMeasurement::watch_routes(Run& run) {
    ReasonBytes reasons;
    timed_run(run, passes(run.cell), [&](const ReadRequest& request) {
        penstock::Report report;
        need(library_.read(destination_.data() + request.place, run.cell.request_size,
                           request.offset, &report),
             "read");
        run.result.verified = run.result.verified && adds_up(report, run.cell.request_size);
        reasons.add(report);
    });
    run.result.routes = reasons.in_words();
}

double RouteMeasurement::run_side(Run& run, size_t side) {
    return side == run.modes.size() ? run_auto(run) : run_mode(run, *run.modes[side]);
}

void RouteMeasurement::judge(Run& run, unsigned pairs) {
    CellResult& result = run.result;
    const size_t mode_count = run.modes.size();
    const bool hot = result.cell.pattern.hot();
    std::vector<size_t> sides = {result.best, mode_count};
    if (hot && result.best != 0) sides.push_back(0);
    if (hot) result.against_cached = result.first_half[0];
    if (hot && pairs > 1) pairs = std::max(pairs, kHotPairsMin - std::min(pairs, kHotPairsMin));
    std::vector<double> seconds(mode_count + 1);
    for (unsigned i = 0; i < pairs; ++i) {
        take_round(&prng_, sides, &seconds, [&](size_t side) { return run_side(run, side); });
        result.judged.emplace_back(seconds.back(), seconds[result.best]);
        if (hot) result.against_cached.emplace_back(seconds.back(), seconds[0]);
    }
}

CellResult RouteMeasurement::measure(const Cell& cell, unsigned pairs) {
    CellResult result;
    result.cell = cell;
    lay(cell.pattern);
    Run run{cell, pass_requests(cell), {}, result};
    for (const Mode& mode : modes_) {
        if (cell.request_size < mode.request_min || cell.request_size > mode.request_max) continue;
        run.modes.push_back(mode.reads.get());
        result.modes.push_back(mode.name);
    }
    result.bytes = passes(cell) * run.requests.size() * cell.request_size;
    watch_routes(run);
    for (PlainReads* mode : run.modes) run_mode(run, *mode);
    Choice choice = choose_best(&prng_, run.modes.size(), pairs,
                                [&](size_t side) { return run_side(run, side); });
    result.first_half = std::move(choice.pairs);
    result.best = choice.best;
    judge(run, pairs);
    return result;
}

}  // namespace penstock::bench
