// Goal: a fit gives back what times were made from, through noise and outliers; no model, however
// hostile, gets past sane(); a live model follows a lasting change and shrugs off the odd one.
#include "planner/cost_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/prng.h"

namespace penstock::planner {
namespace {

using Kind = Sample::Kind;

CostModel random_model(base::Prng& prng) {
    CostModel model;
    model.cutoff_size = (1 + prng.below(128)) * 4096;
    model.direct_ns_per_byte = 0.05 + prng.fraction();
    model.direct_ns = static_cast<double>(model.cutoff_size) * model.direct_ns_per_byte *
                      (1 + prng.fraction());
    model.cached_ns = 100 + 1000 * prng.fraction();
    model.cached_ns_per_byte = 0.03 + 0.3 * prng.fraction();
    model.buffered_ns = 5000 + 200000 * prng.fraction();
    model.buffered_ns_per_byte = 0.2 + prng.fraction();
    return model;
}

// Times of every size from 4 KiB to 16 MiB, `repeats` each; `noise`: largest relative error.
std::vector<Sample> samples_of(const CostModel& model, base::Prng& prng, int repeats, double noise,
                               bool outliers) {
    std::vector<Sample> samples;
    for (uint64_t size = 4096; size <= 16 * base::kMiB; size += size / 2 / 4096 * 4096 + 4096) {
        const auto bytes = static_cast<double>(size);
        for (int i = 0; i < repeats; ++i) {
            const auto disturbed = [&](double ns) {
                if (outliers && prng.below(10) == 0) return ns * (2 + 20 * prng.fraction());
                return ns * (1 + noise * (2 * prng.fraction() - 1));
            };
            const double cached = model.cached_ns + bytes * model.cached_ns_per_byte;
            const double buffered = model.cached_ns + model.buffered_ns +
                                    bytes * model.buffered_ns_per_byte;
            samples.push_back({Kind::kDirect, size, disturbed(model.direct_time(size))});
            samples.push_back({Kind::kCached, size, disturbed(cached)});
            samples.push_back({Kind::kBuffered, size, disturbed(buffered)});
        }
    }
    return samples;
}

TEST(Fit, GivesBackWhatExactTimesWereMadeFrom) {
    for (uint64_t seed = 1; seed <= 50; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        const CostModel model = random_model(prng);
        const Fit found = fit(samples_of(model, prng, 1, 0, false));
        for (uint64_t size = 4096; size <= 64 * base::kMiB; size *= 2) {
            const double truth = model.direct_time(size);
            EXPECT_NEAR(found.model.direct_time(size), truth, truth * 0.02) << size;
        }
        EXPECT_NEAR(found.model.cached_ns_per_byte, model.cached_ns_per_byte, 1e-6);
        EXPECT_NEAR(found.model.cached_ns, model.cached_ns, 1);
        EXPECT_NEAR(found.model.buffered_ns, model.buffered_ns, model.buffered_ns * 1e-6);
        EXPECT_NEAR(found.model.buffered_ns_per_byte, model.buffered_ns_per_byte, 1e-6);
        for (const Fit::Quality& quality : {found.direct, found.cached, found.buffered}) {
            EXPECT_GT(quality.r_squared, 0.999);
            EXPECT_LT(quality.error_mean, 0.01);
            EXPECT_GT(quality.sizes, 10);
        }
    }
}

TEST(Fit, HoldsThroughNoiseAndOutliers) {
    for (uint64_t seed = 1; seed <= 50; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        const CostModel model = random_model(prng);
        const Fit found = fit(samples_of(model, prng, 9, 0.05, true));
        for (uint64_t size = 4096; size <= 16 * base::kMiB; size *= 2) {
            const double truth = model.direct_time(size);
            EXPECT_NEAR(found.model.direct_time(size), truth, truth * 0.1) << size;
        }
        EXPECT_NEAR(found.model.cached_ns_per_byte, model.cached_ns_per_byte,
                    model.cached_ns_per_byte * 0.1);
        EXPECT_GE(found.model.direct_ns, static_cast<double>(found.model.cutoff_size) *
                                             found.model.direct_ns_per_byte * (1 - 1e-12));
    }
}

TEST(Fit, KeepsWhatNobodyMeasuredAndPassesBadSamplesOver) {
    CostModel start;
    start.cached_ns_per_byte = 0.77;
    EXPECT_EQ(fit({}, start).model, sane(start));
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const std::vector<Sample> bad = {{Kind::kDirect, 0, 5},
                                     {Kind::kDirect, 4096, nan},
                                     {Kind::kDirect, 8192, -1},
                                     {Kind::kCached, 4096, HUGE_VAL},
                                     {Kind::kCached, 4096, 700}};
    EXPECT_EQ(fit(bad, start).model, sane(start));
    EXPECT_EQ(fit(bad, start).cached.sizes, 1);
}

TEST(Fit, TimesThatFallWithSizeMakeNoNegativeBandwidth) {
    const std::vector<Sample> odd = {{Kind::kDirect, 4096, 9000},
                                     {Kind::kDirect, 8192, 8000},
                                     {Kind::kDirect, 1 << 20, 100},
                                     {Kind::kCached, 4096, 900},
                                     {Kind::kCached, 1 << 20, 100}};
    const CostModel model = fit(odd).model;
    EXPECT_EQ(model, sane(model));
    EXPECT_GT(model.direct_ns_per_byte, 0);
    EXPECT_GT(model.cached_ns_per_byte, 0);
}

// Seven times of each of nine sizes, as a calibration measures them.
template <class Time>
Fit::Quality quality_of(const Time& time, size_t repeats = 7, size_t sizes = 9) {
    std::vector<Sample> samples;
    for (size_t i = 0; i < sizes; ++i) {
        const uint64_t size = 4096ull << i;
        for (size_t k = 0; k < repeats; ++k)
            samples.push_back({Kind::kCached, size, time(static_cast<double>(size), i, k)});
    }
    return fit(samples).cached;
}

TEST(Fit, ThatIsGoodIsUsed) {
    const auto line = [](double size) { return 1000 + 0.15 * size; };
    base::Prng prng(3);
    const auto noisy = [&](double most) { return 1 + most * (2 * prng.fraction() - 1); };
    EXPECT_EQ(refusal_of(quality_of([&](double size, size_t, size_t) { return line(size); })),
              nullptr);
    EXPECT_EQ(refusal_of(quality_of(
                  [&](double size, size_t, size_t) { return line(size) * noisy(0.15); })),
              nullptr);
    // One time of seven is an outlier.
    EXPECT_EQ(refusal_of(quality_of([&](double size, size_t, size_t k) {
                  return line(size) * (k == 3 ? 20 : noisy(0.05));
              })),
              nullptr);
    // A cutoff in the cost of a route that has none.
    EXPECT_EQ(refusal_of(quality_of(
                  [&](double size, size_t, size_t) { return std::max(20'000.0, line(size)); })),
              nullptr);
}

TEST(Fit, ThatIsBadIsRefusedWithItsReason) {
    const auto line = [](double size) { return 1000 + 0.15 * size; };
    const auto why = [](const Fit::Quality& quality) {
        const char* const reason = refusal_of(quality);
        return std::string(reason != nullptr ? reason : "");
    };
    const auto exact = [&](double size, size_t, size_t) { return line(size); };
    // Measured once or twice: nothing tells how much the times vary.
    for (const size_t repeats : {1, 2}) EXPECT_NE(why(quality_of(exact, repeats)), "") << repeats;
    for (const size_t sizes : {0, 1, 2, 3})
        EXPECT_NE(why(quality_of(exact, 7, sizes)), "") << sizes;
    // A neighbour that uses the CPU in every second round.
    const std::string varies = "times of the same size differ too much";
    for (const double slower : {1.6, 2.0, 10.0}) {
        EXPECT_EQ(why(quality_of([&](double size, size_t, size_t k) {
                      return line(size) * (k % 2 == 0 ? 1 : slower);
                  })),
                  varies)
            << slower;
    }
    // One that used it while every second size was measured.
    for (const double slower : {3.0, 10.0}) {
        EXPECT_NE(why(quality_of([&](double size, size_t i, size_t) {
                      return line(size) * (i % 2 == 0 ? 1 : slower);
                  })),
                  "")
            << slower;
    }
    // Times that fall, and times by chance.
    EXPECT_NE(why(quality_of([](double size, size_t, size_t) { return 1e12 / size; })), "");
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        base::Prng prng(seed);
        std::vector<double> times;
        for (int i = 0; i < 9; ++i) times.push_back(std::exp(14 * prng.fraction()));
        EXPECT_NE(why(quality_of([&](double, size_t i, size_t) { return times[i]; })), "") << seed;
    }
    Fit::Quality odd{1, 0, 0, 9, 7};
    EXPECT_EQ(refusal_of(odd), nullptr);
    for (double Fit::Quality::*const number :
         {&Fit::Quality::r_squared, &Fit::Quality::error_mean, &Fit::Quality::spread}) {
        Fit::Quality bad = odd;
        bad.*number = std::nan("");
        EXPECT_NE(refusal_of(bad), nullptr);
    }
}

TEST(Sane, NothingHostileGetsPast) {
    const double hostile[] = {0,        -1,    -HUGE_VAL,
                              HUGE_VAL, 1e300, std::nan(""),
                              1e-300,   1e18,  std::numeric_limits<double>::max()};
    double CostModel::*const numbers[] = {&CostModel::direct_ns,
                                          &CostModel::direct_ns_per_byte,
                                          &CostModel::direct_start_ns,
                                          &CostModel::direct_submit_ns,
                                          &CostModel::cached_ns,
                                          &CostModel::cached_ns_per_byte,
                                          &CostModel::buffered_ns,
                                          &CostModel::buffered_ns_per_byte,
                                          &CostModel::direct_beside_copies,
                                          &CostModel::error};
    for (uint64_t seed = 1; seed <= 2000; ++seed) {
        base::Prng prng(seed);
        CostModel model;
        for (const auto number : numbers)
            if (prng.below(2) == 0) model.*number = hostile[prng.below(std::size(hostile))];
        if (prng.below(2) == 0) model.cutoff_size = prng.below(2) == 0 ? 0 : UINT64_MAX;
        if (prng.below(2) == 0) model.transfer_size_max = prng.below(2) == 0 ? 0 : UINT64_MAX;
        const CostModel good = sane(model);
        EXPECT_EQ(good, sane(good)) << "seed " << seed;
        for (const auto number : numbers) {
            EXPECT_TRUE(std::isfinite(good.*number) && good.*number >= 0) << "seed " << seed;
        }
        EXPECT_GE(good.direct_ns, static_cast<double>(good.cutoff_size) * good.direct_ns_per_byte);
        EXPECT_GT(good.transfer_size_max, 0);
    }
    EXPECT_EQ(sane(CostModel{}), CostModel{});
}

// What executions of `truth` see, in turn long and short.
Observation seen(const CostModel& truth, base::Prng& prng) {
    const auto count = static_cast<uint32_t>(1 + prng.below(16));
    const uint64_t one = 4096 << prng.below(9);
    const auto size = static_cast<double>(count * one);
    switch (prng.below(3)) {
        case 0:
            return {Kind::kDirect, count, count * one,
                    truth.direct_start_ns + count * truth.direct_time(one)};
        case 1:
            return {Kind::kCached, count, count * one,
                    count * truth.cached_ns + size * truth.cached_ns_per_byte};
        default:
            return {
                Kind::kBuffered, count, count * one,
                count * (truth.cached_ns + truth.buffered_ns) + size * truth.buffered_ns_per_byte};
    }
}

TEST(LiveModel, FollowsAMachineThatBecameSlower) {
    const CostModel calibrated;
    CostModel truth = calibrated;
    truth.direct_ns *= 2;
    truth.direct_ns_per_byte *= 2;
    truth.cached_ns_per_byte *= 1.5;
    truth.buffered_ns_per_byte *= 3;
    base::Prng prng(1);
    LiveModel live(calibrated);
    for (int i = 0; i < 3000; ++i) live.refine(seen(truth, prng));
    for (uint64_t size : {uint64_t{4096}, uint64_t{1} << 20}) {
        EXPECT_NEAR(live.model().direct_time(size) / truth.direct_time(size), 1, 0.1) << size;
    }
    EXPECT_NEAR(live.model().cached_ns_per_byte / truth.cached_ns_per_byte, 1, 0.1);
    EXPECT_NEAR(live.model().buffered_ns_per_byte / truth.buffered_ns_per_byte, 1, 0.1);
}

// Nobody times reads of missing pages through the cache, but they come from the same storage.
TEST(LiveModel, WhatDirectTransfersShowHoldsForMissingPagesToo) {
    const CostModel calibrated;
    for (const double factor : {0.5, 2.0}) {
        LiveModel live(calibrated);
        for (int i = 0; i < 1000; ++i) {
            live.refine(
                {Kind::kDirect, 8, 8 << 20,
                 calibrated.direct_start_ns + 8 * factor * calibrated.direct_time(1 << 20)});
        }
        EXPECT_NEAR(live.model().buffered_ns / calibrated.buffered_ns, factor, 0.1 * factor);
        EXPECT_NEAR(live.model().buffered_ns_per_byte / calibrated.buffered_ns_per_byte, factor,
                    0.1 * factor);
        EXPECT_EQ(live.model().cached_ns_per_byte, calibrated.cached_ns_per_byte);
    }
}

// A machine on which direct transfers are quicker while copies are made, or slower: what they take
// alone is told by those alone.
TEST(LiveModel, LearnsWhatCopiesChangeOfDirectTransfers) {
    const CostModel calibrated;
    constexpr uint64_t kSize = 8 << 20;
    const double alone_ns = calibrated.direct_start_ns + 8 * calibrated.direct_time(kSize / 8);
    for (const double factor : {0.8, 1.4}) {
        LiveModel live(calibrated);
        base::Prng prng(3);
        for (int i = 0; i < 2000; ++i) {
            const double beside = prng.below(3) == 0 ? 0 : prng.fraction();
            live.refine({Kind::kDirect, 8, kSize, alone_ns * (1 + (factor - 1) * beside), beside});
        }
        EXPECT_NEAR(live.model().direct_beside_copies, factor, 0.03);
        EXPECT_NEAR(live.model().direct_time(1 << 20) / calibrated.direct_time(1 << 20), 1, 0.03);
    }
}

TEST(LiveModel, AnOutlierMovesItLittleAndManyOnlySoFar) {
    const CostModel calibrated;
    LiveModel live(calibrated);
    live.refine({Kind::kDirect, 1, 1 << 20, 1e15});
    EXPECT_LT(live.model().direct_time(1 << 20), calibrated.direct_time(1 << 20) * 1.03);
    EXPECT_GT(live.model().direct_time(1 << 20), calibrated.direct_time(1 << 20));
    for (int i = 0; i < 10000; ++i) {
        live.refine({Kind::kDirect, 1, 1 << 20, 1e15});
        live.refine({Kind::kCached, 1, 1 << 20, 1e-9});
    }
    EXPECT_LE(live.model().direct_ns_per_byte,
              calibrated.direct_ns_per_byte * LiveModel::kDriftMax * 1.001);
    EXPECT_GE(live.model().cached_ns_per_byte,
              calibrated.cached_ns_per_byte / LiveModel::kDriftMax * 0.999);
}

TEST(LiveModel, StorageThatIsSlowerThanDefaultsIsSeenWithinATenthOfASecondsTransfers) {
    // A disk that is capped to 300 MB/s by the tenth of a second: 28 transfers at full speed, then
    // one that waits. The other kinds keep their defaults, but missing pages come no faster through
    // the page cache.
    constexpr uint64_t kSize = 1 << 20;
    const double fast_ns = CostModel{}.direct_start_ns + CostModel{}.direct_time(kSize);
    LiveModel live = LiveModel::unmeasured();
    for (int i = 1; i <= 4 * 29; ++i) {
        live.refine({Kind::kCached, 1, kSize, 1e9});
        live.refine({Kind::kBuffered, 1, kSize, 1e9});
        live.refine({Kind::kDirect, 1, kSize, i % 29 == 0 ? 1e8 - 28 * fast_ns : fast_ns});
    }
    EXPECT_NEAR(live.model().direct_time(kSize) / (1e8 / 29), 1, 0.3);
    EXPECT_GE(live.model().buffered_ns_per_byte, live.model().direct_ns_per_byte);
    EXPECT_EQ(live.model().cached_ns_per_byte, CostModel{}.cached_ns_per_byte);
    EXPECT_EQ(live.model().buffered_ns, CostModel{}.buffered_ns);
    // And when the cap goes, all is as before; faster than the defaults it never gets.
    for (int i = 0; i < 1000; ++i) live.refine({Kind::kDirect, 1, kSize, 1e3});
    EXPECT_EQ(live.model(), CostModel{});
    // A machine that slept for an hour is soon forgotten.
    live.refine({Kind::kDirect, 1, kSize, 3.6e12});
    for (int i = 0; i < 500; ++i) live.refine({Kind::kDirect, 1, kSize, fast_ns});
    EXPECT_LT(live.model().direct_time(kSize), 1.5 * CostModel{}.direct_time(kSize));
}

TEST(LiveModel, WhatSaysNothingChangesNothing) {
    LiveModel live(CostModel{});
    for (const double ns : {0.0, -1.0, HUGE_VAL, std::nan("")})
        live.refine({Kind::kCached, 1, 4096, ns});
    live.refine({Kind::kDirect, 0, 4096, 100});
    live.refine({Kind::kDirect, 1, 0, 100});
    EXPECT_EQ(live.model(), CostModel{});
}

}  // namespace
}  // namespace penstock::planner
