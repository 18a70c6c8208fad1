#include <cstdio>
#include <thread>

#include "bench/harness/rounds.h"
#include "bench/preempt/figures.h"
#include "bench/preempt/rounds.h"
#include "preemption/hotspot.h"

namespace penstock::bench {
namespace {

using workloads::HeatOptions;
using workloads::HeatPoint;
using workloads::Part;

struct State {
    const char* name;
    HeatPoint point;
};

std::string describe(const State& state, unsigned cells, uint64_t left, double seconds) {
    const bool shared = state.point == HeatPoint::kBetweenSteps;
    const unsigned floats = state.point == HeatPoint::kAtStart ? 0 : shared ? cells : 2 * cells;
    char text[200];
    std::snprintf(text, sizeof text,
                  "CPU seconds; 256 GPU threads, %u B of each in registers, %u B of shared memory; "
                  "blocks left %llu times a run, %.2f us each time",
                  floats * 4, shared ? cells * 1024 : 0, static_cast<unsigned long long>(left),
                  left == 0 ? 0 : seconds / static_cast<double>(left) * 1e6);
    return text;
}

}  // namespace

void measure_checkpoints(Report& report, const Arguments& arguments, const Watch& watch) {
    if (!has_mode(WaitMode::kForced)) return;
    const State states[] = {{"empty", HeatPoint::kAtStart},
                            {"registers", HeatPoint::kInRegisters},
                            {"registers-and-shared", HeatPoint::kBetweenSteps}};
    for (const State& state : states) {
        for (const unsigned cells : {1u, 2u, 4u, 8u}) {
            const std::string name = std::string("checkpoint-") + state.name + "-" +
                                     std::to_string(cells);
            if (watch.past() || !wanted(arguments, name) ||
                (cells > 1 && state.point == HeatPoint::kAtStart))
                continue;
            HeatOptions heat;
            heat.point = state.point;
            heat.cells = cells;
            heat.columns = heat.rows = arguments.smoke ? 64 : 512;
            MixRig rig(arguments.device, std::thread::hardware_concurrency(), kMemoryDisk);
            rig.add(make_heat(rig.site(), heat), "HotSpot");
            Row row;
            row.name = name;
            row.against = "point-not-taken";
            row.verified = true;
            uint64_t left = 0;
            // The time of all cores, because it tells what leaving costs beside any other load.
            const auto run = [&](WaitMode mode) {
                const MixRun one = rig.run({}, Part::kCompute, mode);
                row.verified = row.verified && one.right;
                if (mode == WaitMode::kForced) left = one.preemption.left;
                return one.cpu_seconds;
            };
            row.pairs = take_pairs(
                some_rounds(arguments), [&] { return run(WaitMode::kForced); },
                [&] { return run(WaitMode::kNever); }, &row.cpu_seconds);
            std::vector<double> more;
            for (const auto& [forced, plain] : row.pairs) more.push_back(forced - plain);
            row.note = describe(state, cells, left, median(std::move(more)));
            report.add(std::move(row));
        }
    }
}

}  // namespace penstock::bench
