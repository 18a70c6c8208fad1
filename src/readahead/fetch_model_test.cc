// Goal: quantiles are within a quarter of the sorted list's for any values, follow a storage that
// changes, and bandwidth is what the storage gave while it was busy.
#include "readahead/fetch_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/prng.h"

namespace penstock::readahead {
namespace {

TEST(Quantiles, AreWithinAQuarterAboveTheSortedList) {
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        Quantiles quantiles;
        std::vector<uint64_t> values;
        const uint64_t count = 1 + prng.below(400);
        for (uint64_t i = 0; i < count; ++i) {
            values.push_back(prng.next() >> prng.below(64));
            quantiles.add(values.back());
        }
        std::ranges::sort(values);
        for (const double share : {0.01, 0.25, 0.5, 0.95, 1.0}) {
            const double rank = std::ceil(share * static_cast<double>(count));
            const uint64_t exact = values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
            const uint64_t said = quantiles.at(share);
            EXPECT_GE(said, exact);
            EXPECT_LE(static_cast<double>(said), 1.25 * static_cast<double>(exact));
        }
    }
}

TEST(Quantiles, OfNothingAreZeroAndTheExtremesHaveTheirBuckets) {
    Quantiles quantiles;
    EXPECT_EQ(quantiles.at(0.95), 0U);
    quantiles.add(0);
    EXPECT_EQ(quantiles.at(0.95), 0U);
    quantiles.add(UINT64_MAX);
    EXPECT_EQ(quantiles.at(1), UINT64_MAX);
}

TEST(Quantiles, FollowAStorageThatBecomesFast) {
    Quantiles quantiles;
    for (int i = 0; i < 100'000; ++i) quantiles.add(10'000'000);
    int needed = 0;
    for (; quantiles.at(0.95) > 200'000 && needed < 100'000; ++needed) quantiles.add(100'000);
    EXPECT_LT(needed, 2000);
}

TEST(FetchModel, SaysWhatItWasToldUntilEightFetches) {
    FetchModel model(1'000'000, 1e9);
    for (int i = 0; i < 7; ++i) {
        model.started(0);
        model.finished(50'000, 0, 1);
        EXPECT_EQ(model.latency_p95_ns(), 1'000'000U);
    }
    model.started(0);
    model.finished(50'000, 0, 1);
    EXPECT_LT(model.latency_p95_ns(), 63'000U);
    EXPECT_EQ(model.gap_size(), static_cast<uint64_t>(57343e-9 * model.bandwidth()));
}

TEST(FetchModel, BandwidthIsThatOfBusyTime) {
    FetchModel model(100'000, 1.0);
    uint64_t now = 0;
    for (int burst = 0; burst < 50; ++burst) {
        now += 1'000'000'000;  // idle for a second
        for (int i = 0; i < 16; ++i) model.started(now);
        // 16 fetches of 1 MiB in 10 ms.
        for (int i = 1; i <= 16; ++i) model.finished(now + i * 625'000, now, 1 << 20);
    }
    EXPECT_NEAR(model.bandwidth(), 16.0 * (1 << 20) / 0.010, 1e6);
    // A storage that lost its speed is believed slowly, a clock that stands still not at all.
    const double fast = model.bandwidth();
    for (int i = 0; i < 16; ++i) model.started(now);
    for (int i = 0; i < 16; ++i) model.finished(now, now, 1 << 20);
    EXPECT_EQ(model.bandwidth(), fast);
    for (int burst = 0; burst < 200; ++burst) {
        now += 1'000'000'000;
        for (int i = 0; i < 16; ++i) model.started(now);
        for (int i = 1; i <= 16; ++i) model.finished(now + i * 6'250'000, now, 1 << 20);
    }
    EXPECT_NEAR(model.bandwidth(), fast / 10, fast / 100);
}

TEST(FetchModel, ShortBurstsAreMeasuredWithoutTheIdleTimeBetween) {
    FetchModel model(100'000, 1.0);
    for (uint64_t now = 0; now < 20'000'000'000; now += 1'000'000'000) {
        for (int i = 0; i < 10; ++i) model.started(now);
        for (int i = 1; i <= 10; ++i) model.finished(now + i * 1'000'000, now, 1 << 20);
    }
    EXPECT_NEAR(model.bandwidth(), 10.0 * (1 << 20) / 0.010, 1e6);
}

TEST(FetchModel, TimeThatRunsBackwardsAndErrorsDoNoHarm) {
    FetchModel model(100'000, 1e9);
    model.failed(5);  // none was under way
    for (int i = 0; i < 100; ++i) {
        model.started(1000);
        model.finished(500, 1000, 4096);
    }
    EXPECT_GE(model.bandwidth(), 1.0);
    EXPECT_EQ(model.latency_p95_ns(), 0U);
}

}  // namespace
}  // namespace penstock::readahead
