#include "bench/preempt/rounds.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <thread>

namespace penstock::bench {
namespace {

using workloads::Part;

constexpr size_t kReadsAlone = 0, kComputeAlone = 1, kFirstMode = 2;  // sides

std::string milliseconds(std::vector<double> seconds) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f ms", median(std::move(seconds)) * 1e3);
    return text;
}

}  // namespace

MixRigs::MixRigs(const Arguments& arguments, workloads::ProductForm form, const Disk& disk)
    : plain_(arguments.device, std::thread::hardware_concurrency(), disk),
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
    sides_.push_back({WaitMode::kSpin, Part::kReads, {}});
    sides_.push_back({WaitMode::kSpin, Part::kCompute, {}});
    for (const WaitMode mode : modes)
        if (has_mode(mode)) sides_.push_back({mode, Part::kAll, {}});
}

void MixRounds::take(unsigned count, base::Prng* prng) {
    std::vector<size_t> order(sides_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::vector<double> seconds(sides_.size());
    for (unsigned round = 0; round <= count; ++round) {
        take_round(prng, order, &seconds, [&](size_t index) {
            Side& side = sides_[index];
            side.runs.push_back(rigs_->of(side.mode).run(mix_, side.part, side.mode));
            return side.runs.back().seconds;
        });
        if (round > 0) continue;
        for (Side& side : sides_) side.runs.clear();
    }
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
    row.note = std::to_string(mix_.io_count) + " I/O kernels" + (mix_.computes ? "" : " alone") +
               "; I " + milliseconds(io()) + ", C " + milliseconds(compute()) + "; CPU time of I " +
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
