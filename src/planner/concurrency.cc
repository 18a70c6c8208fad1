#include "planner/concurrency.h"

#include <algorithm>
#include <cmath>

namespace penstock::planner {
namespace {

// Rungs up or down, in the order of the trials: a factor of two, then four, then one rung.
constexpr int kSteps[] = {-3, 3, -6, 6, -1, 1};
constexpr unsigned kStepCount = std::size(kSteps);

// A window lasts for at least so many operations, for 1.5 times those in flight, and for this time.
constexpr uint64_t kOperationsMin = 24;
constexpr double kWindowNsMin = 2e6;
constexpr double kWindowNsMax = 10e9;  // longer: the machine slept, and the window is discarded
constexpr uint32_t kInFlightMax = 4096;

constexpr double kGainMin = 0.03;  // gain of a step; all gains are natural logarithms
// If operations wait longer than this, fewer are better unless the loss exceeds kLossMax.
constexpr double kQueueNsMax = 20e6, kLossMax = 0.015;
// Pairs of windows until a gain is accepted, and until the trial is given up. kNoise is the prior
// estimate of the gains' noise. It counts as kNoisePairs pairs.
constexpr unsigned kPairsMin = 3, kPairsMax = 24;
constexpr double kNoise = 0.1, kNoisePairs = 2, kNoiseMin = 0.004;
// In standard errors. A step up needs more, because a wrong one delays everything behind it in the
// queue.
constexpr double kConfidence = 1.5, kConfidenceUp = 2;
constexpr unsigned kInterruptionsMax = 16;
// In windows between trials.
constexpr unsigned kPauseMin = 4, kPauseMax = 256;
// If the rate differs so much from the usual, for so many windows in a row, the device has changed.
constexpr double kChange = 0.3;
constexpr unsigned kChangedWindows = 4;
constexpr double kUsualGain = 0.125;

}  // namespace

Concurrency::Concurrency(uint32_t start) {
    rung_ = kRungs - 1;
    while (rung_ > 0 && kDepths[rung_] > start) --rung_;
    best_ = rung_;
}

void Concurrency::saw(const Finished& finished) {
    in_flight_ = std::min(finished.in_flight, kInFlightMax);
    if (finished.operations == 0) return;
    if (passed_over_ > 0) {
        passed_over_ -= std::min<uint64_t>(passed_over_, finished.operations);
        return;
    }
    if (!(finished.ns >= 0 && finished.ns < kWindowNsMax)) return interrupt();
    window_.operations += finished.operations;
    window_.bytes += finished.bytes;
    window_.ns += finished.ns;
    window_.load += static_cast<double>(finished.operations) * in_flight_;
    window_.peak = std::max(window_.peak, in_flight_);
    if (window_.operations < kOperationsMin || window_.ns < kWindowNsMin || window_.bytes == 0)
        return;
    if (static_cast<double>(window_.operations) < 1.5 * window_.in_flight()) return;
    const Window window = window_;
    window_ = {};
    end_window(window);
}

void Concurrency::interrupt() {
    window_ = {};
    // A depth on trial must not stay for long while nothing can be measured.
    if (trial_.on && ++trial_.interruptions > kInterruptionsMax) end_trial(false);
}

void Concurrency::end_window(const Window& window) {
    if (trial_.on) return take_turn(window);
    watch(window);
    pause_ = std::max(pause_, kPauseMin);
    if (++paused_ >= pause_) begin_trial(window);
}

// Checks whether the device still behaves as usual.
void Concurrency::watch(const Window& window) {
    const double rate = std::log(window.rate());
    if (usual_ == 0) usual_ = rate;
    if (std::abs(rate - usual_) < kChange) {
        usual_ += kUsualGain * (rate - usual_);
        unusual_ = 0;
        return;
    }
    if (++unusual_ < kChangedWindows) return;
    usual_ = rate;
    unusual_ = 0;
    // Not to the minimum at once: a rate that changes all the time is not worth constant trials.
    pause_ /= 4;
    best_ = rung_;
}

void Concurrency::begin_trial(const Window& window) {
    paused_ = 0;
    // A depth above the operations that callers have in flight has no effect.
    unsigned from = rung_;
    while (from > 0 && kDepths[from - 1] >= window.peak) --from;
    for (unsigned tried = 0; tried < kStepCount; ++tried, step_ = (step_ + 1) % kStepCount) {
        const int step = kSteps[step_];
        const int to = static_cast<int>(from) + step;
        if (step > 0 && from < rung_) continue;
        const int at = std::clamp(to, 0, static_cast<int>(kRungs) - 1);
        if (at == static_cast<int>(from)) continue;
        trial_ = {};
        trial_.on = true;
        trial_.challenger = static_cast<unsigned>(at);
        // Several small losses on the way down would add up, so each depth is compared with the
        // best one.
        trial_.opponent = step > 0 ? rung_ : std::max(best_, rung_);
        const double queue_ns = window.in_flight() * window.ns /
                                static_cast<double>(window.operations);
        trial_.least = step < 0 && queue_ns > kQueueNsMax ? -kLossMax : kGainMin;
        trial_.challenging = true;
        change_depth(in_flight_);
        return;
    }
}

// Each pair has one turn of each depth, and every second pair has the opposite order.
void Concurrency::take_turn(const Window& window) {
    if (trial_.turns++ % 2 == 0) {
        trial_.first = window;
        trial_.challenging = !trial_.challenging;
        change_depth(in_flight_);
        return;
    }
    const Window& first = trial_.first;
    // If the sizes differ, the workload may have caused the difference.
    const bool alike = first.size() < 2 * window.size() && window.size() < 2 * first.size();
    if (alike) {
        const double gain = std::log(trial_.challenging ? window.rate() / first.rate()
                                                        : first.rate() / window.rate());
        ++trial_.pairs;
        trial_.sum += gain;
        trial_.squares += gain * gain;
    }
    judge();
}

void Concurrency::judge() {
    const auto pairs = static_cast<double>(trial_.pairs);
    if (trial_.pairs > 0) {
        const double mean = trial_.sum / pairs;
        const double spread = std::max(0.0, trial_.squares - pairs * mean * mean);
        const double variance = (spread + kNoisePairs * kNoise * kNoise) /
                                (pairs - 1 + kNoisePairs);
        const double doubt = std::max(std::sqrt(variance / pairs), kNoiseMin);
        const double of_win = trial_.challenger > trial_.opponent ? kConfidenceUp : kConfidence;
        if (mean + kConfidence * doubt < trial_.least) return end_trial(false);
        if (trial_.pairs >= kPairsMin && mean - of_win * doubt > trial_.least)
            return end_trial(true);
    }
    if (trial_.turns >= 2 * kPairsMax) end_trial(false);
}

void Concurrency::end_trial(bool won) {
    const Trial trial = trial_;
    trial_ = {};
    unusual_ = 0;
    paused_ = 0;
    // If the depth stays, the rate from before the trial is kept, so that a change since then is
    // noticed.
    if (won) {
        usual_ = 0;
        rung_ = trial.challenger;
        best_ = trial.least < 0 ? std::max(trial.opponent, rung_) : rung_;
        pause_ = 0;
    } else {
        step_ = (step_ + 1) % kStepCount;
        pause_ = std::clamp(2 * pause_, kPauseMin, kPauseMax);
    }
    change_depth(in_flight_);
}

// Operations in flight began at the old depth, and the first ones at the new depth wait behind
// them. So both are ignored.
void Concurrency::change_depth(uint32_t in_flight) {
    window_ = {};
    passed_over_ = std::max(in_flight, std::min(limit(), 2 * in_flight));
}

}  // namespace penstock::planner
