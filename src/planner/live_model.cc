// Follows a machine that changes: each execution moves the logarithms of the parameters by a small
// step.
#include <algorithm>
#include <cmath>

#include "planner/cost_model.h"

namespace penstock::planner {
namespace {

// kGain is the share of the logarithmic error that one observation removes; kErrorMax limits the
// error that it counts with. So an outlier moves the model by at most 1 %. The model stays nearer
// to the median than to the mean, which a few late reads of a disk would raise. After a lasting
// change by a factor of two, about 35 observations correct half of it.
constexpr double kGain = 0.05;
constexpr double kErrorMax = 0.2;
// The gain for direct_beside_copies, which is a property of the machine and stays.
constexpr double kBesideGain = 0.02;
// For unmeasured storage: the average covers this much expected time of direct transfers, and the
// defaults count as kPriorNs of it at the start.
constexpr double kHorizonNs = 30e6, kPriorNs = 0.5e6;
constexpr double kSeenMax = 1e9;  // per observation: the machine may have slept
// The size of the direct transfer whose time stands for the speed of the storage.
constexpr uint64_t kTypicalSize = 256 << 10;

// As if all transfers had one size: at least this much lies beyond the cutoff.
double beyond_cutoff(const Observation& observation, const CostModel& model) {
    const double cut = static_cast<double>(observation.count) *
                       static_cast<double>(model.cutoff_size);
    return std::max(0.0, static_cast<double>(observation.size) - cut);
}

// Multiplies `value` by exp(step), within kDriftMax of the calibrated value.
void scale(double* value, double step, double calibrated) {
    *value = std::clamp(*value * std::exp(step), calibrated / LiveModel::kDriftMax,
                        calibrated * LiveModel::kDriftMax);
}

}  // namespace

LiveModel LiveModel::unmeasured() {
    LiveModel live{CostModel{}};
    live.expected_ns_ = live.seen_ns_ = kPriorNs;
    return live;
}

// Uses sums and not logarithms. A disk with a rate limit passes the bytes of a tenth of a second at
// once and then none, so that nearly each transfer is as fast as on any other disk.
void LiveModel::refine_slowness(const Observation& observation) {
    const double expected = calibrated_.direct_start_ns +
                            static_cast<double>(observation.count) * calibrated_.direct_ns +
                            beyond_cutoff(observation, calibrated_) *
                                calibrated_.direct_ns_per_byte;
    const double kept = std::exp(-expected / kHorizonNs);
    expected_ns_ = expected_ns_ * kept + expected;
    seen_ns_ = seen_ns_ * kept + std::min(observation.ns, kSeenMax);
    const double slowness = std::clamp(seen_ns_ / expected_ns_, 1.0, kUnmeasuredDriftMax);
    learned_.direct_ns = calibrated_.direct_ns * slowness;
    learned_.direct_ns_per_byte = calibrated_.direct_ns_per_byte * slowness;
}

void LiveModel::refine(const Observation& observation) {
    if (observation.count == 0 || observation.size == 0) return;
    if (!std::isfinite(observation.ns) || observation.ns <= 0) return;
    if (expected_ns_ == 0) {
        refine_kind(observation);
    } else if (observation.kind == Sample::Kind::kDirect) {
        refine_slowness(observation);
    }
    // The cutoff stays, so the constant may have to change.
    learned_ = sane(learned_);
    model_ = learned_;
    if (calibrated_.buffered_ns_per_byte >= calibrated_.direct_ns_per_byte) {
        model_.buffered_ns_per_byte = std::max(learned_.buffered_ns_per_byte,
                                               learned_.direct_ns_per_byte);
    }
}

void LiveModel::refine_kind(const Observation& observation) {
    const auto count = static_cast<double>(observation.count);
    const auto size = static_cast<double>(observation.size);
    double *once = nullptr, *rate = nullptr;
    double once_calibrated = 0, rate_calibrated = 0, once_ns = 0, rate_ns = 0, other_ns = 0;
    double stretch = 1;
    switch (observation.kind) {
        case Sample::Kind::kDirect: {
            once = &learned_.direct_ns, once_calibrated = calibrated_.direct_ns;
            rate = &learned_.direct_ns_per_byte, rate_calibrated = calibrated_.direct_ns_per_byte;
            once_ns = count * *once;
            rate_ns = beyond_cutoff(observation, learned_) * *rate;
            other_ns = learned_.direct_start_ns;
            stretch += (learned_.direct_beside_copies - 1) * observation.beside_copies;
            break;
        }
        case Sample::Kind::kCached:
            once = &learned_.cached_ns, once_calibrated = calibrated_.cached_ns;
            rate = &learned_.cached_ns_per_byte, rate_calibrated = calibrated_.cached_ns_per_byte;
            once_ns = count * *once;
            rate_ns = size * *rate;
            break;
        case Sample::Kind::kBuffered:
            once = &learned_.buffered_ns, once_calibrated = calibrated_.buffered_ns;
            rate = &learned_.buffered_ns_per_byte;
            rate_calibrated = calibrated_.buffered_ns_per_byte;
            once_ns = count * *once;
            rate_ns = size * *rate;
            other_ns = count * learned_.cached_ns;
            break;
    }
    const double expected = once_ns + rate_ns + other_ns;
    if (!(expected > 0)) return;
    const double error = std::clamp(std::log(observation.ns / (stretch * expected)), -kErrorMax,
                                    kErrorMax);
    // Each parameter moves by its share in the time, so that short transfers adjust the constant
    // and long ones the bandwidth.
    const double before = learned_.direct_time(kTypicalSize);
    scale(once, kGain * error * once_ns / expected, once_calibrated);
    scale(rate, kGain * error * rate_ns / expected, rate_calibrated);
    if (observation.kind != Sample::Kind::kDirect) return;
    scale(&learned_.direct_beside_copies, kBesideGain * error * observation.beside_copies,
          calibrated_.direct_beside_copies);
    // Missing pages come from the same storage.
    const double step = std::log(learned_.direct_time(kTypicalSize) / before);
    scale(&learned_.buffered_ns, step, calibrated_.buffered_ns);
    scale(&learned_.buffered_ns_per_byte, step, calibrated_.buffered_ns_per_byte);
}

}  // namespace penstock::planner
