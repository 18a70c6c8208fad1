#include <algorithm>

#include "bench/preempt/figures.h"
#include "bench/preempt/restart_delay.h"

namespace penstock::bench {
namespace {

using workloads::ProductForm;

const std::vector<WaitMode> kModes = {WaitMode::kSpin, WaitMode::kAdaptive, WaitMode::kSeedPolicy};

// The library's mode and the seed's against spinning, or spinning against the bound where there is
// no other.
void add_rows(Report& report, const std::string& mix, const MixRounds& rounds) {
    const std::vector<double> spin = figures(rounds.of(WaitMode::kSpin), &MixRun::seconds);
    if (!rounds.has(WaitMode::kAdaptive)) {
        report.add(
            rounds.row(mix + "-spin", "bound", WaitMode::kSpin, &MixRun::seconds, rounds.bound()));
        return;
    }
    report.add(rounds.row(mix, "spin", WaitMode::kAdaptive, &MixRun::seconds, spin));
    report.add(
        rounds.row(mix + "-seed-policy", "spin", WaitMode::kSeedPolicy, &MixRun::seconds, spin));
    add_restart_delay(report, mix, rounds);
}

}  // namespace

void measure_io_bound(Report& report, const Arguments& arguments, const Constants& constants,
                      const Watch& watch) {
    struct Case {
        const char* name;
        Disk disk;
        MixRig::Mix mix;
        bool judged;
    };
    const Case cases[] = {{"io-bound", kStudyDisk, {kBalancedKernels, false}, true},
                          {"storage-in-memory", kMemoryDisk, {kKernelsMax, false}, true},
                          {"storage-in-memory-mixed", kMemoryDisk, {kBalancedKernels, true}, false},
                          {"io-bound-of-1", kStudyDisk, {1, false}, false},
                          {"io-bound-of-10", kStudyDisk, {kKernelsMax, false}, false}};
    base::Prng prng{3};
    for (const Case& chosen : cases) {
        const std::string name = chosen.name;
        const bool wants = std::ranges::any_of(kModes, [&](WaitMode mode) {
            return wanted(arguments,
                          mode == WaitMode::kAdaptive ? name : name + "-" + bench::name(mode));
        });
        if ((!wants && !wanted(arguments, "restart-delay-" + name)) || watch.past()) continue;
        MixRigs rigs(arguments, constants, ProductForm::kOneRead, chosen.disk);
        MixRounds rounds(&rigs, chosen.mix, kModes);
        rounds.take(name, chosen.judged ? arguments.pairs : some_rounds(arguments), &prng);
        add_rows(report, name, rounds);
    }
}

}  // namespace penstock::bench
