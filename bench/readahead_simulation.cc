// Question: what is readahead worth on recorded streams, next to Linux's window and an oracle?
//
// One reader replays recordings of every class (src/readahead/recordings_fixture.h) in virtual
// time, over models of a storage (500 us, 2 GB/s, 32 requests at once) and of a cache of 64 MiB
// (6 MiB for LU). It prints a table of all policies with the first seed. A row is the time of the
// replay against that of Linux's window (read_ahead_kb 128), with a pair for each seed of
// latencies. Simulated: nothing is read, and no row says what a real storage does. Linux's window
// is a model too, with neither large folios nor several readers. Not measured: the time that
// prediction takes.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness/report.h"
#include "readahead/recordings_fixture.h"
#include "readahead/siblings.h"

namespace penstock::bench {
namespace {

using namespace readahead;

constexpr const char* kQuestion =
    "what is readahead worth on recorded streams, next to Linux's window and an oracle?";

std::vector<Recording> recordings(uint64_t seed) {
    return {sequential(), small_sequential(), strided(),      backward(), nested(),
            lu(),         runs(seed),         shuffled(seed), zipf(seed), gpu_blocks(seed)};
}

std::string case_of(const Recording& recording) {
    std::string name = recording.name;
    std::ranges::replace(name, ' ', '-');
    return name;
}

Figures replay(const Recording& recording, Policy policy, uint64_t seed) {
    Setting setting;
    setting.seed = seed;
    if (recording.name == "LU") setting.cache_size = 6 << 20;  // less than the matrix
    const auto siblings = std::make_shared<Siblings>();
    return simulate(recording, policy, setting,
                    [siblings](uint64_t stream) { return siblings->begin(stream); });
}

void measure(Report& report, const Arguments& arguments, size_t index) {
    Row row;
    for (uint64_t seed = 1; seed <= arguments.pairs; ++seed) {
        const Recording recording = recordings(seed)[index];
        const Figures ours = replay(recording, Policy::kPenstock, seed);
        const Figures linux_window = replay(recording, Policy::kLinux, seed);
        row.pairs.emplace_back(static_cast<double>(ours.time_ns) * 1e-9,
                               static_cast<double>(linux_window.time_ns) * 1e-9);
        if (seed > 1) continue;
        row.name = case_of(recording);
        row.bytes = ours.demanded_size;
        const std::pair<Policy, Figures> all[] = {
            {Policy::kNone, replay(recording, Policy::kNone, seed)},
            {Policy::kLinux, linux_window},
            {Policy::kPenstock, ours},
            {Policy::kOracle, replay(recording, Policy::kOracle, seed)}};
        for (const auto& [policy, figures] : all) {
            const std::string line = figures_line(recording.name, policy, figures);
            std::fprintf(stderr, "%s\n", line.c_str());
            row.note += std::string(row.note.empty() ? "" : "; ") + name(policy) + ": " +
                        figures_note(figures);
        }
    }
    row.against = "linux-window";
    row.simulated = true;
    report.add(std::move(row));
}

}  // namespace

int run_all(const Arguments& arguments) {
    Report report("readahead_simulation", kQuestion, arguments);
    std::fprintf(stderr, "%s\n", figures_heading().c_str());
    const std::vector<Recording> all = recordings(1);
    for (size_t i = 0; i < all.size(); ++i) {
        if (wanted(arguments, case_of(all[i]))) measure(report, arguments, i);
    }
    report.write();
    return 0;
}

}  // namespace penstock::bench

int main(int argc, char** argv) {
    return penstock::bench::run_all(
        penstock::bench::parse_arguments(argc, argv, penstock::bench::kQuestion));
}
