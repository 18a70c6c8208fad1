#include "bench/preempt/rounds.h"

#include <algorithm>
#include <cstdio>
#include <thread>

namespace penstock::bench {
namespace {

using workloads::Part;

// Sides.
constexpr size_t kReadsAlone = 0, kComputeAlone = 1, kIoKernelsCompute = 2, kSecondForm = 3,
                 kFirstMode = 4;

std::string milliseconds(std::vector<double> seconds) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f ms", median(std::move(seconds)) * 1e3);
    return text;
}

}  // namespace

MixRigs::MixRigs(const Arguments& arguments, const Constants& constants,
                 workloads::ProductForm form, const Disk& disk)
    : constants_(constants),
      reads_of_block_(form == workloads::ProductForm::kOneRead ? 1 : workloads::kProductPieces),
      plain_(arguments.device, std::thread::hardware_concurrency(), disk),
      wide_(arguments.device, kPlacesFactor * std::thread::hardware_concurrency(), disk),
      description_(std::string(form == workloads::ProductForm::kOneRead ? "1 read" : "8 reads") +
                   " a block; " + disk.describe()) {
    add_mix(&plain_, form, arguments.smoke);
    add_mix(&wide_, form, arguments.smoke);
}

std::vector<double> figures(const std::vector<MixRun>& runs, double MixRun::*figure) {
    std::vector<double> values;
    for (const MixRun& run : runs) values.push_back(run.*figure);
    return values;
}

MixRounds::MixRounds(MixRigs* rigs, MixRig::Mix mix, const std::vector<WaitMode>& modes)
    : rigs_(rigs), mix_(mix) {
    sides_.push_back({WaitMode::kSpin, Part::kReads, mix, {}});
    sides_.push_back({WaitMode::kSpin, Part::kCompute, mix, {}});
    sides_.push_back({WaitMode::kSpin, Part::kCompute, {mix.io_count, false}, {}});
    const WaitMode second = has_mode(WaitMode::kNever) ? WaitMode::kNever : WaitMode::kSpin;
    sides_.push_back({second, Part::kCompute, mix, {}});
    for (const WaitMode mode : modes)
        if (has_mode(mode)) sides_.push_back({mode, Part::kAll, mix, {}});
}

void tell_progress(const std::string& name, unsigned rounds, size_t sides) {
    std::fprintf(stderr, "%s: %u rounds of %zu runs ...\n", name.c_str(), rounds + 1, sides);
}

void MixRounds::take(const std::string& name, unsigned count, base::Prng* prng) {
    tell_progress(name, count, sides_.size());
    take_rounds(prng, sides_.size(), count, [&](size_t index) {
        Side& side = sides_[index];
        side.runs.push_back(rigs_->of(side.mode).run(side.mix, side.part, side.mode));
        return side.runs.back().seconds;
    });
    for (Side& side : sides_) side.runs.erase(side.runs.begin());  // of the round that is dropped
}

size_t MixRounds::side_of(WaitMode mode) const {
    size_t side = kFirstMode;
    while (side < sides_.size() && sides_[side].mode != mode) ++side;
    return side;
}

std::vector<double> MixRounds::seconds(size_t side) const {
    return figures(sides_[side].runs, &MixRun::seconds);
}
std::vector<double> MixRounds::io() const { return seconds(kReadsAlone); }
std::vector<double> MixRounds::compute() const { return seconds(kComputeAlone); }

std::vector<double> MixRounds::bound() const {
    std::vector<double> bound = io();
    const std::vector<double> computes = compute();
    for (size_t i = 0; i < bound.size(); ++i) bound[i] = std::max(bound[i], computes[i]);
    return bound;
}

Work MixRounds::work() const {
    const MixRig& rig = rigs_->of(WaitMode::kSpin);
    Work work;
    work.io = median(io());
    work.compute = median(compute());
    work.io_compute = mix_.computes ? std::min(median(seconds(kIoKernelsCompute)), work.compute)
                                    : work.compute;
    work.form = median(seconds(kSecondForm)) - work.compute;
    work.reads_of_block = rigs_->reads_of_block();
    work.reads = rig.block_count({mix_.io_count, false}) * work.reads_of_block;
    work.bytes = rig.read_size(mix_);
    work.places = work.cores = std::thread::hardware_concurrency();
    return work;
}

std::vector<double> MixRounds::predictions(WaitMode mode) const {
    return std::vector<double>(of(mode).size(), predict(mode, rigs_->constants(), work()).seconds);
}

Row MixRounds::row(std::string name, std::string against, WaitMode mode, double MixRun::*figure,
                   const std::vector<double>& baseline) const {
    Row row;
    row.name = std::move(name);
    row.against = std::move(against);
    row.bytes = rigs_->of(mode).read_size(mix_);
    row.verified = true;
    PreemptionStatistics sums;
    const std::vector<MixRun>& runs = of(mode);
    for (size_t i = 0; i < runs.size(); ++i) {
        row.pairs.emplace_back(runs[i].*figure, baseline[i]);
        row.cpu_seconds += runs[i].cpu_seconds;
        sums.left += runs[i].preemption.left;
        sums.spun += runs[i].preemption.spun;
        sums.restarts += runs[i].preemption.restarts;
        sums.resume_ns += runs[i].preemption.resume_ns;
    }
    // The baseline may be any other side, so all of them must be right.
    for (const Side& side : sides_)
        for (const MixRun& run : side.runs) row.verified = row.verified && run.right;
    const auto each = [&](uint64_t count) { return std::to_string(count / runs.size()); };
    if (figure == &MixRun::seconds) {
        const Work whole = work();
        row.note = predict(mode, rigs_->constants(), whole).describe(whole) + "; ";
    }
    row.note += std::to_string(mix_.io_count) + " I/O kernels" + (mix_.computes ? "" : " alone") +
                "; I " + milliseconds(io()) + ", C " + milliseconds(compute()) +
                "; CPU time of I " +
                milliseconds(figures(sides_[kReadsAlone].runs, &MixRun::cpu_seconds)) + ", of C " +
                milliseconds(figures(sides_[kComputeAlone].runs, &MixRun::cpu_seconds)) +
                ", of a run " + milliseconds(figures(runs, &MixRun::cpu_seconds)) +
                "; a run: blocks left " + each(sums.left) + " times and spun " + each(sums.spun) +
                " times, " + each(sums.restarts) + " restarts, ready blocks waited " +
                std::to_string(sums.left == 0 ? 0 : sums.resume_ns / sums.left / 1000) + " us; " +
                rigs_->description();
    return row;
}

}  // namespace penstock::bench
