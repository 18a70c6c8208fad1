// Goal: over recorded streams, our readahead is near an oracle where the stream can be told, costs
// nothing where it cannot, and is compared with Linux's window honestly. Prints the table.
//
// What is measured here is readahead, so streams are told by scripts after a few accesses; random
// ones meet a predictor that is always sure and always wrong.
#include "readahead/simulation.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>

#include "readahead/recordings_fixture.h"

namespace penstock::readahead {
namespace {

constexpr size_t kLearning = 4;  // accesses before a script is told

struct Compared {
    Figures none, linux_window, ours, oracle;
};

void print(const std::string& what, Policy policy, const Figures& figures) {
    std::printf("%-22s %-9s %9.1f %9.1f %9.3f %9.3f %10.2f %9llu\n", what.c_str(), name(policy),
                static_cast<double>(figures.time_ns) * 1e-6,
                static_cast<double>(figures.stall_ns) * 1e-6, figures.accuracy(),
                figures.coverage(), static_cast<double>(figures.wasted_size()) * 1e-6,
                static_cast<unsigned long long>(figures.requests));
}

Compared compare(const Recording& recording, const Setting& setting, const PredictorSource& source,
                 const std::string& label = "") {
    const Compared compared{simulate(recording, Policy::kNone, setting, source),
                            simulate(recording, Policy::kLinux, setting, source),
                            simulate(recording, Policy::kPenstock, setting, source),
                            simulate(recording, Policy::kOracle, setting, source)};
    static bool headed = false;
    if (!headed) {
        std::printf("%-22s %-9s %9s %9s %9s %9s %10s %9s\n", "stream", "policy", "time ms",
                    "stall ms", "accuracy", "coverage", "wasted MB", "requests");
        headed = true;
    }
    const std::string what = label.empty() ? recording.name : label;
    print(what, Policy::kNone, compared.none);
    print(what, Policy::kLinux, compared.linux_window);
    print(what, Policy::kPenstock, compared.ours);
    print(what, Policy::kOracle, compared.oracle);
    return compared;
}

TEST(Simulation, StreamsThatCanBeToldAreNearTheOracle) {
    for (const Recording& recording :
         {sequential(), small_sequential(), strided(), backward(), nested(), lu()}) {
        SCOPED_TRACE(recording.name);
        Setting setting;
        if (recording.name == "LU") setting.cache_size = 6 << 20;  // less than the matrix
        const Compared all = compare(recording, setting, scripts_of(recording, kLearning));
        // It stands still while it learns, which the oracle need not.
        EXPECT_LE(all.ours.time_ns, all.oracle.time_ns + all.oracle.time_ns / 20);
        EXPECT_LE(all.ours.time_ns, all.linux_window.time_ns);
        EXPECT_LT(2 * all.ours.stall_ns, all.none.stall_ns);
        EXPECT_GE(all.ours.coverage(), 0.95);
        EXPECT_LE(static_cast<double>(all.ours.wasted_size()),
                  0.02 * static_cast<double>(all.ours.demanded_size));
    }
}

TEST(Simulation, WhatCannotBeToldLosesAtMostTwoPercent) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
        for (const Recording& recording : {shuffled(seed), zipf(seed)}) {
            SCOPED_TRACE(testing::Message() << recording.name << ", seed " << seed);
            Setting setting;
            setting.seed = seed;
            const PredictorSource wrong = [&](uint64_t) {
                return std::make_unique<GuessingPredictor>(seed, recording.file_size);
            };
            const Compared all = compare(recording, setting, wrong);
            const auto none = static_cast<double>(all.none.time_ns);
            EXPECT_LE(static_cast<double>(all.ours.time_ns), 1.02 * none);
            EXPECT_LE(static_cast<double>(all.ours.wasted_size()),
                      0.02 * static_cast<double>(all.ours.demanded_size) +
                          static_cast<double>(setting.options.credit_size_first));
        }
    }
}

TEST(Simulation, BlocksOfAKernelInAnyOrderAreStreamsOfTheirOwn) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        const Recording recording = gpu_blocks(seed);
        const Compared alone = compare(recording, {}, scripts_of(recording, kLearning));
        EXPECT_GE(alone.ours.coverage(), 0.85) << "all but the 4 of 32 that each block learns from";
        EXPECT_EQ(alone.ours.wasted_size(), 0U);
        // With a program that earlier blocks have confirmed, one access of a block is enough.
        const Compared known = compare(recording, {}, scripts_of(recording, 1),
                                       recording.name + ", known");
        EXPECT_GE(known.ours.coverage(), 0.96);
        EXPECT_LT(known.ours.time_ns, known.linux_window.time_ns);
        EXPECT_LT(3 * known.ours.time_ns, known.none.time_ns);
    }
}

TEST(Simulation, TheDistanceFollowsTheLatencyOfTheStorage) {
    for (const uint64_t latency_us : {50, 200, 1000, 5000, 10000}) {
        SCOPED_TRACE(testing::Message() << latency_us << " us");
        Setting setting;
        setting.storage.latency_ns = latency_us * 1000;
        const Recording recording = strided();
        const Compared all = compare(recording, setting, scripts_of(recording, kLearning),
                                     "strided, " + std::to_string(latency_us) + " us");
        // Learning, and doubling the first window until it spans the latency.
        const uint64_t start_ns = (2 * kLearning + 10) * setting.storage.latency_ns;
        EXPECT_LE(all.ours.time_ns, all.oracle.time_ns + all.oracle.time_ns / 10 + start_ns);
        EXPECT_EQ(all.ours.wasted_size(), 0U);
    }
}

TEST(Simulation, ASlowLinkIsFilledAndNotMore) {
    Setting setting;
    setting.storage.bandwidth = 300e6;  // 218 us for a piece that is wanted every 100 us
    const Recording recording = strided();
    const Compared all = compare(recording, setting, scripts_of(recording, kLearning),
                                 "strided, 300 MB/s");
    EXPECT_LE(static_cast<double>(all.ours.time_ns),
              1.05 * static_cast<double>(all.oracle.time_ns));
}

TEST(Simulation, IsRepeatableAndItsModelIsWhatItSays) {
    const Recording recording = strided();
    const auto scripts = scripts_of(recording, kLearning);
    for (const Policy policy :
         {Policy::kNone, Policy::kLinux, Policy::kPenstock, Policy::kOracle}) {
        const Figures once = simulate(recording, policy, {}, scripts);
        const Figures again = simulate(recording, policy, {}, scripts);
        EXPECT_EQ(once.time_ns, again.time_ns);
        EXPECT_EQ(once.requests, again.requests);
        EXPECT_EQ(once.read_size, once.missed_size + once.prefetched_size);
        EXPECT_EQ(once.demanded_size, uint64_t{1500} * 65536);
    }
    // Without prefetching each access pays a latency (1.1 of the median on average) and its
    // sending.
    const Figures none = simulate(recording, Policy::kNone, {}, scripts);
    EXPECT_NEAR(static_cast<double>(none.stall_ns) / 1500, 1.1 * 500'000 + 65536 / 2.0, 20'000);
    // And what Linux is good and bad at is seen.
    const Recording plain = sequential();
    EXPECT_GE(simulate(plain, Policy::kLinux, {}, scripts).coverage(), 0.95);
    EXPECT_LE(simulate(recording, Policy::kLinux, {}, scripts).coverage(), 0.05);
}

TEST(Simulation, RandomStreamsAndSettingsEndWithEveryAccountClosed) {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        Recording recording{"random", (1 + prng.below(2000)) * kSimulationPage, {}};
        const uint64_t streams = 1 + prng.below(5);
        for (int i = 0; i < 400; ++i) {
            const auto offset = static_cast<int64_t>(prng.below(recording.file_size));
            const auto size = static_cast<int64_t>(1 + prng.below(200'000));
            recording.accesses.push_back(
                {prng.below(streams), {offset, size}, prng.below(1 << 20)});
        }
        Setting setting;
        setting.seed = seed;
        setting.cache_size = (1 + prng.below(8)) << 20;
        setting.storage.latency_ns = prng.below(5'000'000);
        setting.storage.slots = 4 + prng.below(40);
        for (const Policy policy :
             {Policy::kNone, Policy::kLinux, Policy::kPenstock, Policy::kOracle}) {
            const Figures got = simulate(recording, policy, setting, scripts_of(recording, 2));
            EXPECT_LE(got.used_size, got.prefetched_size) << name(policy);
            EXPECT_GE(got.time_ns, got.stall_ns);
        }
    }
}

}  // namespace
}  // namespace penstock::readahead
