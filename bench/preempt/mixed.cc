#include "bench/preempt/figures.h"
#include "bench/preempt/rounds.h"

namespace penstock::bench {
namespace {

using workloads::ProductForm;

const std::vector<WaitMode> kAllModes = {WaitMode::kSpin,         WaitMode::kAdaptive,
                                         WaitMode::kAlways,       WaitMode::kSeedPolicy,
                                         WaitMode::kSplitKernels, WaitMode::kMorePlaces};
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

void measure_form(Report& report, const Arguments& arguments, const Watch& watch,
                  ProductForm form) {
    const bool one = form == ProductForm::kOneRead;
    const std::string mix = one ? "mixed-1-read" : "mixed-8-reads";
    MixRigs rigs(arguments, form, kStudyDisk);
    base::Prng prng{one ? 1u : 2u};
    MixRounds judged(&rigs, {kBalancedKernels}, kAllModes);
    judged.take(arguments.pairs, &prng);
    add_times(report, mix, judged, kAllModes);
    add_times_in_system(report, one ? "-1-read" : "", judged);
    const unsigned pairs = arguments.full ? arguments.pairs : arguments.pairs / 5 + 1;
    for (size_t count = 1; count <= kKernelsMax; ++count) {
        const std::string of = mix + "-of-" + std::to_string(count);
        if (!wanted(arguments, of) || (arguments.smoke && count % kKernelsMax != 1)) continue;
        if (watch.past()) {
            report.describe("left out for time", mix + " of more I/O kernels");
            return;
        }
        MixRounds swept(&rigs, {count}, kSweptModes);
        swept.take(pairs, &prng);
        add_times(report, of, swept, kSweptModes);
    }
}

}  // namespace

void measure_mixed(Report& report, const Arguments& arguments, const Watch& watch) {
    if (wanted(arguments, "mixed-1-read") || wanted(arguments, "io-kernel-time-in-system-1-read"))
        measure_form(report, arguments, watch, ProductForm::kOneRead);
    if (wanted(arguments, "mixed-8-reads") || wanted(arguments, "io-kernel-time-in-system"))
        measure_form(report, arguments, watch, ProductForm::kEightReads);
}

}  // namespace penstock::bench
