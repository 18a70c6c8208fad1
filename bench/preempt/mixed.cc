#include <algorithm>
#include <span>

#include "bench/preempt/figures.h"
#include "bench/preempt/restart_delay.h"

namespace penstock::bench {
namespace {

using workloads::ProductForm;

const std::vector<WaitMode> kAllModes = {
    WaitMode::kSpin,         WaitMode::kAdaptive,   WaitMode::kAlways,  WaitMode::kSeedPolicy,
    WaitMode::kSplitKernels, WaitMode::kMorePlaces, WaitMode::kBackoff, WaitMode::kPersistent};
const std::vector<WaitMode> kSweptModes = {WaitMode::kSpin, WaitMode::kAdaptive,
                                           WaitMode::kSeedPolicy};

// The library's own mode has the name of the case.
std::string case_name(const std::string& mix, WaitMode mode) {
    return mode == WaitMode::kAdaptive ? mix : mix + "-" + name(mode);
}

// Every mode against the bound, and the library's against every other.
void add_times(Report& report, const std::string& mix, const MixRounds& rounds,
               const std::vector<WaitMode>& modes) {
    for (const WaitMode mode : modes) {
        if (!rounds.has(mode)) continue;
        report.add(
            rounds.row(case_name(mix, mode), "bound", mode, &MixRun::seconds, rounds.bound()));
        report.add(rounds.row(case_name(mix, mode), "prediction", mode, &MixRun::seconds,
                              rounds.predictions(mode)));
        if (mode == WaitMode::kAdaptive || !rounds.has(WaitMode::kAdaptive)) continue;
        report.add(rounds.row(mix, name(mode), WaitMode::kAdaptive, &MixRun::seconds,
                              figures(rounds.of(mode), &MixRun::seconds)));
    }
}

// Figures 12 and 13: each mode against spinning.
void add_times_in_system(Report& report, const std::string& suffix, const MixRounds& rounds) {
    for (const WaitMode mode : {WaitMode::kAdaptive, WaitMode::kSeedPolicy}) {
        if (!rounds.has(mode)) continue;
        const auto add = [&](const char* kind, double MixRun::*figure) {
            report.add(rounds.row(case_name(kind + suffix, mode), "spin", mode, figure,
                                  figures(rounds.of(WaitMode::kSpin), figure)));
        };
        add("io-kernel-time-in-system", &MixRun::io_seconds);
        add("compute-kernel-time-in-system", &MixRun::compute_seconds);
    }
}

struct Form {
    ProductForm form;
    const char* mix;     // begins the names of its rows
    const char* suffix;  // of the rows of times in the system
    uint64_t seed;
};
constexpr Form kForms[] = {{ProductForm::kOneRead, "mixed-1-read", "-1-read", 1},
                           {ProductForm::kEightReads, "mixed-8-reads", "", 2}};
// I/O kernels of the sweep; kBalancedKernels are in the judged mix.
constexpr size_t kSweptCounts[] = {1, 2, 3, 7, 10};
constexpr size_t kAllCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

bool wants_judged(const Arguments& arguments, const Form& form) {
    std::vector<std::string> names{std::string("restart-delay-") + form.mix};
    for (const WaitMode mode : kAllModes) names.push_back(case_name(form.mix, mode));
    for (const WaitMode mode : {WaitMode::kAdaptive, WaitMode::kSeedPolicy})
        for (const char* kind : {"io-kernel-time-in-system", "compute-kernel-time-in-system"})
            names.push_back(case_name(std::string(kind) + form.suffix, mode));
    return std::ranges::any_of(names,
                               [&](const std::string& one) { return wanted(arguments, one); });
}

}  // namespace

void measure_mixed(Report& report, const Arguments& arguments, const Constants& constants) {
    for (const Form& form : kForms) {
        if (!wants_judged(arguments, form)) continue;
        MixRigs rigs(arguments, constants, form.form, kStudyDisk);
        base::Prng prng{form.seed};
        MixRounds judged(&rigs, {kBalancedKernels}, kAllModes);
        judged.take(form.mix, arguments.pairs, &prng);
        add_times(report, form.mix, judged, kAllModes);
        add_times_in_system(report, form.suffix, judged);
        if (judged.has(WaitMode::kAdaptive)) add_restart_delay(report, form.mix, judged);
    }
}

void measure_sweep(Report& report, const Arguments& arguments, const Constants& constants,
                   const Watch& watch) {
    const std::span<const size_t> counts = arguments.full ? std::span<const size_t>(kAllCounts)
                                                          : std::span<const size_t>(kSweptCounts);
    for (const Form& form : kForms) {
        const auto name_of = [&](size_t count) {
            return std::string(form.mix) + "-of-" + std::to_string(count);
        };
        const auto wants = [&](size_t count) {
            return std::ranges::any_of(kSweptModes, [&](WaitMode mode) {
                return wanted(arguments, case_name(name_of(count), mode));
            });
        };
        if (std::ranges::none_of(counts, wants)) continue;
        MixRigs rigs(arguments, constants, form.form, kStudyDisk);
        base::Prng prng{form.seed};
        for (const size_t count : counts) {
            if (!wants(count) || (arguments.smoke && count % kKernelsMax != 1)) continue;
            if (watch.past()) {
                report.describe("left out for time", name_of(count) + " and more I/O kernels");
                break;
            }
            MixRounds swept(&rigs, {count}, kSweptModes);
            swept.take(name_of(count), few_rounds(arguments), &prng);
            add_times(report, name_of(count), swept, kSweptModes);
        }
    }
}

}  // namespace penstock::bench
