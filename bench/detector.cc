// Question: does the online detector keep its budget, find patterns, and ignore random accesses?
//
// Time: thousands of streams of all classes take turns of 64 to 1023 accesses. The classes are the
// golden patterns, random nests, delta units, interleaved streams, these with 1 % and 20 % of
// random accesses, runs of random length, and random streams. The time stamp counter times each
// access separately, observe() and predict() of 4 accesses together; its own cost is subtracted.
// Baseline: the budget of 1000 ns. At the begin of its turn, other streams have displaced a
// stream's memory from the CPU's caches; within the turn it is warm. In another row, turns have 1
// to 7 accesses, which need nearly all their data from memory. Recovered: the share of golden
// patterns that analyse() returns exactly, in a program that is no longer, and the share of random
// programs. Random: bytes read in a simulation with detector and readahead, against bytes read
// without them. Not measured: files, caches, threads.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "access/detector.h"
#include "access/patterns_fixture.h"
#include "bench/detector/random_streams.h"
#include "bench/harness/report.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace penstock::bench {
namespace {

using access::Access;
using access::Detector;
namespace patterns = access::patterns;

constexpr const char* kQuestion =
    "does the online detector keep its budget, find what is there, and leave random alone?";
constexpr double kBudgetNs = 1000;
constexpr size_t kAhead = 4;

uint64_t ticks() {
#if defined(__x86_64__)
    unsigned core = 0;
    return __rdtscp(&core);
#else
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

// The length of a tick, and the number of ticks that an empty measurement takes.
struct Clock {
    double ns_per_tick = 1;
    uint64_t own = 0;
    Clock() {
        const auto start = std::chrono::steady_clock::now();
        const uint64_t first = ticks();
        while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(50)) continue;
        const uint64_t last = ticks();
        const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() -
                                                               start;
        ns_per_tick = spent.count() / static_cast<double>(last - first);
        own = UINT64_MAX;
        for (int i = 0; i < 10000; ++i) {
            const uint64_t before = ticks();
            own = std::min(own, ticks() - before);
        }
    }
};

std::vector<Access> with_noise(std::vector<Access> accesses, unsigned percent, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (Access& access : accesses) {
        if (random() % 100 < percent) access = {static_cast<int64_t>(random() >> 3), 4096};
    }
    return accesses;
}

std::vector<Access> random_stream(std::mt19937_64& random, uint64_t blocks, size_t count) {
    std::vector<Access> out;
    for (size_t i = 0; i < count; ++i)
        out.push_back({static_cast<int64_t>(random() % blocks * 4096), 4096});
    return out;
}

// Sequential runs of random length at random places.
std::vector<Access> runs_of_random_length(std::mt19937_64& random, size_t count) {
    std::vector<Access> out;
    while (out.size() < count) {
        auto offset = static_cast<int64_t>(random() >> 4);
        for (uint64_t left = 1 + random() % 40; left > 0; --left, offset += 4096)
            out.push_back({offset, 4096});
    }
    return out;
}

std::vector<std::vector<Access>> all_classes() {
    std::vector<std::vector<Access>> all;
    for (const patterns::Pattern& pattern : patterns::golden()) {
        all.push_back(patterns::expand(pattern.nodes));
        all.push_back(with_noise(all.back(), 1, all.size()));
        if (all.size() % 6 == 0) all.push_back(with_noise(all.back(), 20, all.size()));
    }
    for (uint64_t seed = 1; seed <= 60; ++seed)
        all.push_back(patterns::expand(patterns::Generator(seed).program()));
    std::mt19937_64 random(1);
    for (const uint64_t blocks : {uint64_t{1} << 40, uint64_t{1} << 20, uint64_t{1000}}) {
        for (int i = 0; i < 4; ++i) all.push_back(random_stream(random, blocks, 2000));
    }
    for (int i = 0; i < 8; ++i) all.push_back(runs_of_random_length(random, 2000));
    return all;
}

struct Stream {
    Detector detector;
    const std::vector<Access>* accesses = nullptr;
    size_t at = 0;
    int64_t shift = 0;
};

struct Quantiles {
    double p50 = 0, p99 = 0, p999 = 0;
};

// Number of accesses in a stream's turn: from `least` up to below `end`.
struct Turn {
    uint64_t least, end;
};

// A run over all streams; each turn continues where the stream's last turn ended.
Quantiles time_accesses(std::vector<Stream>& streams, size_t count, Turn turn,
                        std::mt19937_64& random) {
    const Clock clock;
    std::vector<uint32_t> spent;
    spent.reserve(count + 1024);
    std::array<Access, kAhead> ahead;
    uint64_t sink = 0;
    while (spent.size() < count) {
        Stream& stream = streams[random() % streams.size()];
        for (uint64_t left = turn.least + random() % (turn.end - turn.least); left > 0; --left) {
            Access access = (*stream.accesses)[stream.at];
            access.offset += stream.shift;
            if (++stream.at == stream.accesses->size()) {
                stream.at = 0;
                stream.shift = static_cast<int64_t>(random() >> 20);
            }
            const uint64_t before = ticks();
            stream.detector.observe(access, before);
            sink += stream.detector.predict(ahead);
            const uint64_t after = ticks();
            spent.push_back(static_cast<uint32_t>(std::min<uint64_t>(
                after - before - std::min(clock.own, after - before), UINT32_MAX)));
        }
    }
    if (sink == 0) fail("nothing was ever predicted");
    std::sort(spent.begin(), spent.end());
    const auto quantile = [&](double share) {
        return spent[static_cast<size_t>(share * static_cast<double>(spent.size() - 1))] *
               clock.ns_per_tick;
    };
    return {quantile(0.5), quantile(0.99), quantile(0.999)};
}

void measure_time(Report& report, const Arguments& arguments, const char* name, Turn turn) {
    const std::vector<std::vector<Access>> classes = all_classes();
    std::vector<Stream> streams(arguments.smoke ? 256 : 4096);
    for (size_t i = 0; i < streams.size(); ++i) {
        streams[i].accesses = &classes[i % classes.size()];
        streams[i].shift = static_cast<int64_t>(i) << 30;
    }
    const size_t count = arguments.smoke ? 100000 : 4000000;
    std::mt19937_64 random(2);
    Quantiles last;
    Row row;
    row.name = name;
    row.against = "budget-1000-ns";
    row.unit = "ns";
    row.pairs = take_pairs(
        arguments.pairs,
        [&] {
            last = time_accesses(streams, count, turn, random);
            return last.p99;
        },
        [] { return kBudgetNs; }, &row.cpu_seconds);
    row.verified = true;
    row.note = std::to_string(streams.size()) + " streams of " + std::to_string(classes.size()) +
               " sequences in turns of " + std::to_string(turn.least) + " to " +
               std::to_string(turn.end - 1) + ", " + std::to_string(count) +
               " accesses; observe() and predict(" + std::to_string(kAhead) +
               "); last run: median " + std::to_string(static_cast<int>(last.p50)) + " ns, p99.9 " +
               std::to_string(static_cast<int>(last.p999)) + " ns";
    report.add(std::move(row));
}

size_t length(const std::vector<access::Node>& nodes) {
    size_t sum = nodes.size();
    for (const access::Node& node : nodes) sum += node.list.size();
    return sum;
}

bool recovered(const std::vector<access::Node>& nodes) {
    const std::vector<Access> accesses = patterns::expand(nodes);
    const access::Program found = access::analyse(accesses, {});
    return patterns::expand(found.nodes) == accesses && length(found.nodes) <= length(nodes);
}

void measure_recovered(Report& report, const Arguments& arguments) {
    const std::vector<patterns::Pattern> golden = patterns::golden();
    size_t exact = 0;
    std::string missed;
    for (const patterns::Pattern& pattern : golden) {
        const bool found = recovered(pattern.nodes);
        exact += found ? 1 : 0;
        if (!found) missed += " " + pattern.name;
    }
    Row row;
    row.name = "recovered";
    row.against = "generated";
    row.unit = "share";
    row.pairs = {{static_cast<double>(exact) / static_cast<double>(golden.size()), 1.0}};
    row.verified = true;
    row.note = std::to_string(exact) + " of " + std::to_string(golden.size()) + " golden patterns" +
               (missed.empty() ? "" : "; not" + missed);
    report.add(std::move(row));

    const uint64_t count = arguments.smoke ? 50 : 2000;
    uint64_t random_exact = 0;
    for (uint64_t seed = 1; seed <= count; ++seed)
        random_exact += recovered(patterns::Generator(seed).program()) ? 1 : 0;
    Row random;
    random.name = "recovered-random-programs";
    random.against = "generated";
    random.unit = "share";
    random.pairs = {{static_cast<double>(random_exact) / static_cast<double>(count), 1.0}};
    random.verified = true;
    random.note = std::to_string(random_exact) + " of " + std::to_string(count);
    report.add(std::move(random));
}

}  // namespace

int run_all(const Arguments& arguments) {
    Report report("detector", kQuestion, arguments);
    report.describe("streams", arguments.smoke ? "256" : "4096");
    if (wanted(arguments, "p99-ns")) measure_time(report, arguments, "p99-ns", {64, 1024});
    if (wanted(arguments, "p99-ns-cold")) measure_time(report, arguments, "p99-ns-cold", {1, 8});
    if (wanted(arguments, "recovered")) measure_recovered(report, arguments);
    if (wanted(arguments, "random-extra-bytes")) measure_random(report, arguments);
    report.write();
    return 0;
}

}  // namespace penstock::bench

int main(int argc, char** argv) {
    return penstock::bench::run_all(
        penstock::bench::parse_arguments(argc, argv, penstock::bench::kQuestion));
}
