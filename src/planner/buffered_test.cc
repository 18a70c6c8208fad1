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

// A request of 1 MiB, all of which is cached.
Told plan_of_cached(const CostModel& model, Algorithm algorithm) {
    static const std::vector<ResidencyRun> kRuns = {{{0, base::kMiB}, Residency::kCached}};
    base::Prng prng(1);
    Case one(prng, 4);
    one.request = {};
    one.request.range = {0, base::kMiB};
    one.request.residency = kRuns;
    one.request.direct = {Route::kDirect, 4096, 512};
    one.options = {};
    one.options.algorithm = algorithm;
    return plan(one, Buffered::kGaining, model);
}

uint64_t swallowed_size(const Told& told) {
    uint64_t sum = 0;
    for (const Transfer& one : told.transfers) sum += one.swallowed_size;
    return sum;
}

TEST(ModelError, CachedPagesAreBypassedOnlyForAGainThatExceedsIt) {
    int bypassed = 0, kept = 0;
    for (const double error : {0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.9}) {
        for (double ratio = 0.05; ratio < 3; ratio *= 1.07) {
            // By this model a direct transfer takes `ratio` times as long as a copy.
            CostModel model;
            model.cached_ns_per_byte = 0.3;
            model.cached_ns = 0;
            model.direct_ns_per_byte = 0.3 * ratio;
            model.direct_ns = model.direct_start_ns = model.direct_submit_ns = 0;
            model.cutoff_size = 0;
            model.error = error;
            for (const Algorithm algorithm : {Algorithm::kOverlapped, Algorithm::kExact}) {
                const Told told = plan_of_cached(model, algorithm);
                const bool pays = ratio * (1 + error) < 1 - error;
                EXPECT_EQ(swallowed_size(told), pays ? base::kMiB : 0)
                    << "error " << error << ", ratio " << ratio;
                EXPECT_LE(told.bound_ns, told.predicted_ns * (1 + 1e-9));
                (pays ? bypassed : kept) += 1;
            }
        }
    }
    EXPECT_GT(bypassed, 100);
    EXPECT_GT(kept, 100);
}

// The same holds of single runs in larger plans, up to ties: with less to gain, a plan may join
// transfers differently.
TEST(ModelError, PlansBypassLessForALargerError) {
    int fewer = 0, more = 0;
    for (uint64_t seed = 1; seed <= 2000; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        Case one(prng, 60);
        one.options.algorithm = Algorithm::kExact;
        uint64_t before = UINT64_MAX;
        for (const double error : {0.0, 0.1, 0.3, 0.6, 0.9}) {
            CostModel model = one.model;
            model.error = error;
            const Told told = plan(one, Buffered::kCheaper, model);
            fewer += swallowed_size(told) < before && before != UINT64_MAX ? 1 : 0;
            more += swallowed_size(told) > before ? 1 : 0;
            before = swallowed_size(told);
            EXPECT_LE(told.bound_ns, told.predicted_ns * (1 + 1e-9));
        }
    }
    EXPECT_GT(fewer, 500);
    EXPECT_LT(more, fewer / 20) << fewer;
}

TEST(ModelError, MissingPagesKeepTheirRoute) {
    for (uint64_t seed = 1; seed <= 1000; ++seed) {
        base::Prng prng(seed);
        Case one(prng, 60);
        one.options.algorithm = Algorithm::kExact;
        const std::vector<ResidencyRun> runs = {{one.request.range, Residency::kMissing}};
        one.request.residency = runs;
        CostModel model = one.model;
        model.cached_ns = model.direct_submit_ns = 0;
        const Told exact = plan(one, Buffered::kCheaper, model);
        model.error = 0.5;
        const Told margin = plan(one, Buffered::kCheaper, model);
        EXPECT_NEAR(margin.predicted_ns, exact.predicted_ns, 1e-6 * exact.predicted_ns) << seed;
        EXPECT_EQ(any_buffered(margin), any_buffered(exact)) << seed;
    }
}

TEST(ModelError, MixedRunsAreReadDirectOnlyForAGainThatExceedsIt) {
    constexpr uint64_t kGrain = 256 * base::kKiB;
    for (const double error : {0.0, 0.2, 0.5}) {
        CostModel model;
        model.buffered_ns = 0;
        model.buffered_ns_per_byte = 1;
        model.direct_ns_per_byte = 0.3;
        model.error = error;
        // Missing bytes cost 1 ns through the cache; all cost 0.3 ns direct.
        for (uint64_t missing = 0; missing <= kGrain; missing += kGrain / 16) {
            ResidencyRun run{{0, kGrain}, Residency::kMixed, kGrain - missing};
            settle_mixed({&run, 1}, kGrain, model, Buffered::kCheaper);
            const double buffered = static_cast<double>(missing);
            const double direct = 0.3 * static_cast<double>(kGrain);
            const bool pays = buffered * (1 - error) > direct * (1 + error);
            EXPECT_EQ(run.state, pays ? Residency::kMissing : Residency::kCached)
                << "error " << error << ", missing " << missing;
        }
    }
}

}  // namespace
}  // namespace penstock::planner
