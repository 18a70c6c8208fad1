// Following a machine that changes: a small step in the logarithm of the parameters for each
// execution.
#include <algorithm>
#include <cmath>

#include "planner/cost_model.h"

namespace penstock::planner {
namespace {

// Share of the (logarithmic) error that one observation takes away, and the largest error that it
// counts with: so an outlier moves the model by at most 2.5 %, a lasting change of a factor of two
// is followed by half within about 20 observations.
constexpr double kGain = 0.05;
constexpr double kErrorMax = 0.5;
// Unmeasured, there is more to learn: a factor of ten within about 12 observations.
constexpr double kUnmeasuredGain = 0.3, kUnmeasuredErrorMax = 1.5;

}  // namespace

void LiveModel::scale(double* value, double step, double calibrated) const {
    const double least = measured_ ? calibrated / kDriftMax : calibrated;
    const double most = calibrated * (measured_ ? kDriftMax : kUnmeasuredDriftMax);
    *value = std::clamp(*value * std::exp(step), least, most);
}

void LiveModel::refine(const Observation& observation) {
    if (observation.count == 0 || observation.size == 0) return;
    if (!std::isfinite(observation.ns) || observation.ns <= 0) return;
    if (!measured_ && observation.kind != Sample::Kind::kDirect) return;
    const auto count = static_cast<double>(observation.count);
    const auto size = static_cast<double>(observation.size);
    double *once = nullptr, *rate = nullptr;
    double once_calibrated = 0, rate_calibrated = 0, once_ns = 0, rate_ns = 0, other_ns = 0;
    switch (observation.kind) {
        case Sample::Kind::kDirect: {
            // As if all were of one size: what lies beyond the cutoff is then at least this.
            const double beyond = size - count * static_cast<double>(learned_.cutoff_size);
            once = &learned_.direct_ns, once_calibrated = calibrated_.direct_ns;
            rate = &learned_.direct_ns_per_byte, rate_calibrated = calibrated_.direct_ns_per_byte;
            once_ns = count * *once;
            rate_ns = std::max(0.0, beyond) * *rate;
            other_ns = learned_.direct_start_ns;
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
    const double gain = measured_ ? kGain : kUnmeasuredGain;
    const double error_max = measured_ ? kErrorMax : kUnmeasuredErrorMax;
    const double step = gain *
                        std::clamp(std::log(observation.ns / expected), -error_max, error_max);
    // Each moves by its share in the time, so that short transfers teach the constant and long
    // ones the bandwidth.
    scale(once, step * once_ns / expected, once_calibrated);
    scale(rate, step * rate_ns / expected, rate_calibrated);
    // The cutoff stays, so the constant may have to give way.
    learned_ = sane(learned_);
    model_ = learned_;
    if (calibrated_.buffered_ns_per_byte >= calibrated_.direct_ns_per_byte) {
        model_.buffered_ns_per_byte = std::max(learned_.buffered_ns_per_byte,
                                               learned_.direct_ns_per_byte);
    }
}

}  // namespace penstock::planner
