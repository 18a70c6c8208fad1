#include "bench/preempt/points.h"

#include <algorithm>
#include <cstdio>
#include <thread>

#include "bench/harness/rounds.h"
#include "bench/preempt/rounds.h"
#include "preemption/pieces.h"

namespace penstock::bench {
namespace {

using workloads::Part;

constexpr size_t kReadsSpinning = 0, kReadsLeaving = 1, kComputation = 2, kSecondForm = 3;  // sides
constexpr MixRig::Mix kAlone{1, false};

unsigned cores() { return std::thread::hardware_concurrency(); }
unsigned places_of(const PointShape& shape) { return shape.places == 0 ? cores() : shape.places; }

std::vector<double> seconds_of(const std::vector<MixRun>& runs) {
    std::vector<double> seconds;
    for (const MixRun& run : runs) seconds.push_back(run.seconds);
    return seconds;
}

// Blocks keep their places: the reads alone are those of spinning blocks.
bool leaves(WaitMode mode) { return mode != WaitMode::kSpin && has_mode(mode); }

}  // namespace

Point::Point(const std::string& device, const Constants& constants, const PointShape& shape)
    : constants_(constants), shape_(shape), rig_(device, places_of(shape), kStudyDisk) {
    const double read = shape.read_size / (kStudyDisk.bandwidth_mbs * 1e6);
    workloads::PiecesOptions options;
    options.blocks = shape.blocks;
    options.pieces = shape.reads_of_block;
    options.piece_size = shape.read_size;
    options.rounds = static_cast<unsigned>(shape.ratio * read * places_of(shape) /
                                           std::max(constants.round, 1e-9));
    auto pieces = need(make_pieces(rig_.site(), options), "pieces");
    rig_.add(std::unique_ptr<workloads::Workload>(std::move(pieces)), "pieces");
}

void Point::take(const std::string& name, unsigned rounds, base::Prng* prng,
                 const std::vector<PointRun>& runs) {
    const WaitMode leaving = has_mode(WaitMode::kAdaptive) ? WaitMode::kAdaptive : WaitMode::kSpin;
    sides_ = {{{WaitMode::kSpin}, Part::kReads, {}},
              {{leaving}, Part::kReads, {}},
              {{WaitMode::kSpin}, Part::kCompute, {}},
              {{leaving == WaitMode::kSpin ? leaving : WaitMode::kNever}, Part::kCompute, {}}};
    for (const PointRun& run : runs) sides_.push_back({run, Part::kAll, {}});
    tell_progress(name, rounds, sides_.size());
    take_rounds(prng, sides_.size(), rounds, [&](size_t index) {
        Side& side = sides_[index];
        rig_.set_dispatch_delay(side.run.dispatch_delay_us);
        side.runs.push_back(rig_.run(kAlone, side.part, side.run.mode));
        return side.runs.back().seconds;
    });
    for (Side& side : sides_) side.runs.erase(side.runs.begin());  // of the round that is dropped
}

std::vector<double> Point::seconds(size_t run) const { return seconds_of(side_of(run).runs); }

Work Point::work(size_t run) const {
    const auto median_of = [&](size_t side) { return median(seconds_of(sides_[side].runs)); };
    Work work;
    work.io = median_of(leaves(side_of(run).run.mode) ? kReadsLeaving : kReadsSpinning);
    work.compute = work.io_compute = median_of(kComputation);
    work.form = median_of(kSecondForm) - work.compute;
    work.reads = uint64_t{shape_.blocks} * shape_.reads_of_block;
    work.reads_of_block = shape_.reads_of_block;
    work.bytes = rig_.read_size(kAlone);
    work.places = places_of(shape_);
    work.cores = cores();
    work.dispatch_delay = side_of(run).run.dispatch_delay_us * 1e-6;
    return work;
}

Prediction Point::prediction(size_t run) const {
    return predict(side_of(run).run.mode, constants_, work(run));
}

std::vector<double> Point::predictions(size_t run) const {
    return std::vector<double>(side_of(run).runs.size(), prediction(run).seconds);
}

bool Point::right() const {
    return std::ranges::all_of(sides_, [](const Side& side) {
        return std::ranges::all_of(side.runs, [](const MixRun& run) { return run.right; });
    });
}

Row Point::place(std::string name) const {
    Row row;
    row.name = std::move(name);
    row.against = "reads";
    row.verified = right();
    const size_t reads = has_mode(WaitMode::kAdaptive) ? kReadsLeaving : kReadsSpinning;
    for (size_t i = 0; i < sides_[reads].runs.size(); ++i)
        row.pairs.emplace_back(sides_[kComputation].runs[i].seconds, sides_[reads].runs[i].seconds);
    row.note = "C against I: where the point lies";
    return row;
}

Row Point::row(std::string name, std::string against, size_t run,
               const std::vector<double>& baseline) const {
    const Side& side = side_of(run);
    Row row;
    row.name = std::move(name);
    row.against = std::move(against);
    row.bytes = rig_.read_size(kAlone);
    row.verified = right();
    PreemptionStatistics sums;
    for (size_t i = 0; i < side.runs.size(); ++i) {
        row.pairs.emplace_back(side.runs[i].seconds, baseline[i]);
        row.cpu_seconds += side.runs[i].cpu_seconds;
        sums.left += side.runs[i].preemption.left;
        sums.restarts += side.runs[i].preemption.restarts;
    }
    const Work whole = work(run);
    char text[320];
    std::snprintf(text, sizeof text,
                  "%u places, %u blocks of %u reads of %u KiB; I %.1f ms, C %.1f ms, measured "
                  "%.1f ms; blocks left %llu times, %llu launches of workers; ",
                  whole.places, shape_.blocks, shape_.reads_of_block, shape_.read_size >> 10,
                  whole.io * 1e3, whole.compute * 1e3, median(seconds(run)) * 1e3,
                  static_cast<unsigned long long>(sums.left / side.runs.size()),
                  static_cast<unsigned long long>(sums.restarts / side.runs.size()));
    row.note = text + prediction(run).describe(whole);
    return row;
}

}  // namespace penstock::bench
