// Goal: over recorded streams, our readahead is near an oracle where the stream can be told, costs
// nothing where it cannot, and is compared with Linux's window honestly. Prints the table.
//
// The rows "penstock" are the online detector, what siblings teach each other, and readahead
// together. Where readahead alone is in question, streams are told by scripts after a few accesses
// ("told"), and random ones meet a predictor that is always sure and always wrong ("misled").
#include "readahead/simulation_fixture.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "readahead/detector_predictor.h"
#include "readahead/recordings_fixture.h"
#include "readahead/siblings.h"

namespace penstock::readahead {
namespace {

constexpr size_t kLearning = 4;  // accesses before a script is told

// Streams of one recording are siblings; those of another are not.
PredictorSource siblings(std::shared_ptr<Siblings> all) {
    return [all = std::move(all)](uint64_t stream) { return all->begin(stream); };
}
PredictorSource detect() { return siblings(std::make_shared<Siblings>()); }

// Each stream for itself.
PredictorSource detect_alone() {
    return [](uint64_t /*stream*/) { return std::make_unique<DetectorPredictor>(); };
}

struct Compared {
    Figures none, linux_window, ours, oracle;
};

void print(const std::string& what, Policy policy, const Figures& figures) {
    static bool headed = false;
    if (!std::exchange(headed, true)) std::printf("%s\n", figures_heading().c_str());
    std::printf("%s\n", figures_line(what, policy, figures).c_str());
}

Compared compare(const Recording& recording, const Setting& setting, const PredictorSource& source,
                 const std::string& label = "") {
    const Compared compared{simulate(recording, Policy::kNone, setting, source),
                            simulate(recording, Policy::kLinux, setting, source),
                            simulate(recording, Policy::kPenstock, setting, source),
                            simulate(recording, Policy::kOracle, setting, source)};
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
        const Compared all = compare(recording, setting, detect());
        // It stands still while it learns, which the oracle need not.
        EXPECT_LE(all.ours.time_ns, all.oracle.time_ns + all.oracle.time_ns / 5);
        EXPECT_LE(all.ours.time_ns, all.linux_window.time_ns);
        EXPECT_LT(2 * all.ours.stall_ns, all.none.stall_ns);
        // LU outgrows its cache towards the end; what is then pushed out too early depends on where
        // windows happen to begin: 0.91 to 0.96, by the access at which the first one does.
        EXPECT_GE(all.ours.coverage(), recording.name == "LU" ? 0.90 : 0.94);
        EXPECT_LE(static_cast<double>(all.ours.wasted_size()),
                  0.03 * static_cast<double>(all.ours.demanded_size));
        // Without the share of the detector.
        const Figures told = simulate(recording, Policy::kPenstock, setting,
                                      scripts_of(recording, kLearning));
        print(recording.name + ", told", Policy::kPenstock, told);
        EXPECT_LE(told.time_ns, all.oracle.time_ns + all.oracle.time_ns / 20);
        EXPECT_LE(static_cast<double>(told.wasted_size()),
                  0.02 * static_cast<double>(told.demanded_size));
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
            const Compared all = compare(recording, setting, detect());
            const Figures misled = simulate(recording, Policy::kPenstock, setting, wrong);
            print(recording.name + ", misled", Policy::kPenstock, misled);
            const auto none = static_cast<double>(all.none.time_ns);
            const double lost = 0.02 * static_cast<double>(all.none.demanded_size);
            EXPECT_LE(static_cast<double>(all.ours.time_ns), 1.005 * none);
            EXPECT_LE(static_cast<double>(all.ours.wasted_size()), lost);
            EXPECT_LE(static_cast<double>(misled.time_ns), 1.02 * none);
            EXPECT_LE(static_cast<double>(misled.wasted_size()),
                      lost + static_cast<double>(setting.options.credit_size_first));
        }
    }
}

// Linux's window takes less time here, and reads five times as much that nobody wants.
TEST(Simulation, RunsWhoseEndsCannotBeToldGainMoreThanTheyWaste) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        const Compared all = compare(runs(seed), {}, detect());
        EXPECT_LT(2 * all.ours.time_ns, all.none.time_ns);
        EXPECT_GE(all.ours.accuracy(), 0.6);
        EXPECT_LT(3 * all.ours.wasted_size(), all.linux_window.wasted_size());
    }
}

TEST(Simulation, BlocksOfAKernelInAnyOrderAreStreamsOfTheirOwn) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        const Recording recording = gpu_blocks(seed);
        // Each block for itself: it loses its first three accesses.
        const Compared alone = compare(recording, {}, detect_alone(), recording.name + ", alone");
        EXPECT_GE(alone.ours.coverage(), 28.9 / 32);
        EXPECT_LE(alone.ours.wasted_size(), alone.ours.demanded_size / 1000);
        EXPECT_LT(alone.ours.time_ns, alone.linux_window.time_ns);
        EXPECT_LT(4 * alone.ours.time_ns, alone.none.time_ns);
        // The first blocks that end teach the others.
        const auto family = std::make_shared<Siblings>();
        const Compared all = compare(recording, {}, siblings(family));
        EXPECT_GE(all.ours.coverage(), 30.5 / 32);
        EXPECT_LE(all.ours.wasted_size(), all.ours.demanded_size / 1000);
        EXPECT_LT(5 * all.ours.time_ns, 3 * all.linux_window.time_ns);
        // And those of the next launch: one access of a block is enough.
        ASSERT_TRUE(family->program());
        const Compared known = compare(recording, {},
                                       siblings(std::make_shared<Siblings>(*family->program())),
                                       recording.name + ", learned");
        EXPECT_GE(known.ours.coverage(), 30.9 / 32);
        EXPECT_EQ(known.ours.wasted_size(), 0U);
        EXPECT_LT(2 * known.ours.time_ns, known.linux_window.time_ns);
        // By a script.
        const Figures told = simulate(recording, Policy::kPenstock, {}, scripts_of(recording, 1));
        print(recording.name + ", told", Policy::kPenstock, told);
        EXPECT_GE(told.coverage(), 30.9 / 32) << "at the start there is not trust for all";
        EXPECT_LT(3 * told.time_ns, 2 * known.linux_window.time_ns);
    }
}

TEST(Simulation, TheDistanceFollowsTheLatencyOfTheStorage) {
    for (const uint64_t latency_us : {50, 200, 1000, 5000, 10000}) {
        SCOPED_TRACE(testing::Message() << latency_us << " us");
        Setting setting;
        setting.storage.latency_ns = latency_us * 1000;
        const Recording recording = strided();
        const Compared all = compare(recording, setting, detect(),
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
