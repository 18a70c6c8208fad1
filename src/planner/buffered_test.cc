// Goal: what is missing comes through the page cache as far as the request lets it, in every plan;
// runs that are cached in part become what is cheaper.
#include "planner/buffered.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "planner/brute_force_fixture.h"

namespace penstock::planner {
namespace {

using brute_force::Case;
using extent::Residency;
using extent::ResidencyRun;

constexpr Algorithm kAlgorithms[] = {Algorithm::kOverlapped, Algorithm::kExact, Algorithm::kGreedy};

struct Told {
    std::vector<Transfer> transfers;
    double predicted_ns = 0, bound_ns = 0;
};

Told plan(const Case& one, Buffered buffered, const CostModel& model) {
    Planner planner(one.options);
    Request request = one.request;
    request.buffered = buffered;
    const Plan made = planner.plan(request, model).value();
    return {{made.transfers.begin(), made.transfers.end()}, made.predicted_ns, made.bound_ns};
}

bool any_buffered(const Told& told) {
    return std::any_of(told.transfers.begin(), told.transfers.end(), [](const Transfer& one) {
        return one.reason == RouteReason::kCheaperBuffered;
    });
}

TEST(Buffered, PlansGoThroughTheCacheAsFarAsTheyMay) {
    int buffered = 0, kept_from = 0;
    for (uint64_t seed = 1; seed <= 2000; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        Case one(prng, 60);
        one.options.algorithm = kAlgorithms[seed % 3];
        one.options.coarse = prng.below(2) == 0;
        const Told cheaper = plan(one, Buffered::kCheaper, one.model);
        const Told never = plan(one, Buffered::kNever, one.model);
        const Told gaining = plan(one, Buffered::kGaining, one.model);

        EXPECT_FALSE(any_buffered(never));
        EXPECT_LE(never.bound_ns, never.predicted_ns);
        buffered += any_buffered(cheaper) ? 1 : 0;
        const bool exact = one.options.algorithm == Algorithm::kExact;
        EXPECT_GE(never.predicted_ns, exact ? cheaper.predicted_ns * (1 - 1e-9) : 0);
        // The same as of a model that makes the cache dear.
        CostModel dear = one.model;
        dear.buffered_ns = dear.buffered_ns_per_byte = 1e9;
        EXPECT_EQ(never.transfers, plan(one, Buffered::kCheaper, dear).transfers);

        const CostModel sound = sane(one.model);
        const bool gains = sound.direct_ns_per_byte >=
                           kBufferedGainMin * sound.buffered_ns_per_byte;
        EXPECT_EQ(gaining.transfers, (gains ? cheaper : never).transfers);
        kept_from += never.transfers == cheaper.transfers ? 0 : 1;
        if (testing::Test::HasFailure()) return;
    }
    EXPECT_GT(buffered, 100);
    EXPECT_GT(kept_from, 100);
}

TEST(Buffered, WhatNoDirectTransferCanBringIsPredictedAsItCosts) {
    // The head is not aligned, and there is no room before it.
    const std::vector<ResidencyRun> runs{{{0, 1 << 20}, Residency::kMissing, 0}};
    Request request;
    request.range = {100, (1 << 20) - 100};
    request.residency = runs;
    request.direct = {Route::kDirect, 4096, 4};
    request.memory = 100;
    request.buffered = Buffered::kNever;
    Planner planner({Algorithm::kExact});
    const Plan plan = planner.plan(request, {}).value();
    ASSERT_EQ(plan.transfers.size(), 2u);
    EXPECT_EQ(plan.transfers[0].reason, RouteReason::kUnaligned);
    EXPECT_EQ(plan.transfers[1].route, Route::kDirect);
    EXPECT_LT(plan.predicted_ns, 1e6);
}

TEST(Buffered, MixedRunsBecomeWhatIsCheaper) {
    constexpr uint64_t kGrain = 64 << 10, kSize = 1 << 20;
    CostModel model;
    const auto settled = [&](uint64_t resident, Buffered buffered) {
        std::vector<ResidencyRun> runs{{{0, kSize}, Residency::kMixed, resident},
                                       {{kSize, kSize}, Residency::kDirty, 0}};
        settle_mixed(runs, kGrain, model, buffered);
        EXPECT_EQ(runs[0].resident_size, resident);
        EXPECT_EQ(runs[1].state, Residency::kDirty);
        return runs[0].state;
    };
    // 16 reads of what is missing, against 1 MiB direct at 0.3 ns a byte.
    model.direct_ns_per_byte = 0.3;
    model.buffered_ns_per_byte = 0.1;
    model.buffered_ns = 16e3;
    EXPECT_EQ(settled(kSize / 2, Buffered::kCheaper), Residency::kCached);
    EXPECT_EQ(settled(kSize / 2, Buffered::kGaining), Residency::kCached);
    EXPECT_EQ(settled(kSize / 2, Buffered::kNever), Residency::kMissing);
    model.buffered_ns = 17e3;
    EXPECT_EQ(settled(kSize / 2, Buffered::kCheaper), Residency::kMissing);
    EXPECT_EQ(settled(kSize - 4096, Buffered::kCheaper), Residency::kCached);
}

// Alone each mixed run is a little cheaper through the cache. With direct transfers in flight its
// read waits until they are over, and so do the copies behind it.
TEST(Buffered, MixedRunsComeDirectWhereTheirReadsWouldWaitBehindOthers) {
    constexpr uint64_t kGrain = 64 << 10, kSize = 1 << 20;
    CostModel model;
    model.direct_ns_per_byte = 0.3;
    model.buffered_ns_per_byte = 0.9;
    model.buffered_ns = 15e3;  // and 3.7 us for a page, against 19.7 us direct
    const auto settled = [&](uint64_t missing, uint64_t cached) {
        std::vector<ResidencyRun> runs{
            {{0, missing}, Residency::kMissing, 0},
            {{missing, kGrain}, Residency::kMixed, kGrain - 4096},
            {{missing + kGrain, cached}, Residency::kCached, cached},
            {{missing + kGrain + cached, kGrain}, Residency::kMixed, kGrain - 4096}};
        settle_mixed(runs, kGrain, model, Buffered::kGaining);
        EXPECT_EQ(runs[0].state, Residency::kMissing);
        EXPECT_EQ(runs[2].state, Residency::kCached);
        EXPECT_EQ(runs[1].state, runs[3].state);
        return runs[1].state;
    };
    EXPECT_EQ(settled(4 * kSize, 4 * kSize), Residency::kMissing);
    EXPECT_EQ(settled(0, 4 * kSize), Residency::kCached);  // nothing to wait for
    EXPECT_EQ(settled(4 * kSize, 0), Residency::kMissing);
    // Where storage is slow, a page of 16 is worth waiting for.
    model.direct_ns_per_byte = 10;
    model.buffered_ns_per_byte = 10;
    EXPECT_EQ(settled(4 * kSize, 4 * kSize), Residency::kCached);
}

}  // namespace
}  // namespace penstock::planner
