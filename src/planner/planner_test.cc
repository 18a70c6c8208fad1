// Goal: the exact algorithm finds the least cost there is; every plan delivers the request exactly
// once, aligned, in transfers of legal size, with dirty pages never direct; the greedy and the
// overlapped algorithm stay as near to the best as is said; no input, however hostile, breaks that.
#include "planner/planner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <new>
#include <vector>

#include "base/counted_allocations_fixture.h"
#include "planner/brute_force_fixture.h"
#include "testing/effort.h"

namespace penstock::planner {
namespace {

using brute_force::Case;
using extent::Extent;
using extent::Residency;

// Everything that holds for every plan.
void expect_valid(const Plan& plan, const Request& request, const CostModel& model) {
    const uint64_t alignment = std::max(request.direct.offset_alignment,
                                        request.direct.memory_alignment);
    uint64_t at = request.range.offset;
    for (const Transfer& transfer : plan.transfers) {
        EXPECT_EQ(transfer.range.offset, at);
        EXPECT_FALSE(transfer.range.empty());
        at = transfer.range.end();
        if (transfer.route == Route::kCached) {
            EXPECT_EQ(transfer.moved, transfer.range);
            EXPECT_EQ(transfer.swallowed_size, 0);
            continue;
        }
        EXPECT_EQ(transfer.route, request.direct.route);
        EXPECT_EQ(transfer.moved.offset % alignment, 0);
        EXPECT_EQ(transfer.moved.size % alignment, 0);
        EXPECT_EQ((request.memory + transfer.moved.offset - request.range.offset) %
                      request.direct.memory_alignment,
                  0);
        EXPECT_LE(transfer.moved.size,
                  std::max({model.transfer_size_max, uint64_t{4096}, alignment}));
        EXPECT_EQ(extent::intersect(transfer.moved, request.range), transfer.range);
        EXPECT_LE(transfer.range.offset - transfer.moved.offset, request.room_before);
        EXPECT_LE(transfer.moved.end() - transfer.range.end(), request.room_behind);
        EXPECT_LE(transfer.swallowed_size, transfer.range.size);
        for (const extent::ResidencyRun& run : request.residency) {
            EXPECT_FALSE(run.state == Residency::kDirty &&
                         extent::overlap(run.range, transfer.range));
        }
    }
    EXPECT_EQ(at, request.range.end());
    EXPECT_GE(plan.predicted_ns, 0);
    EXPECT_LE(plan.bound_ns, plan.predicted_ns);
    EXPECT_TRUE(std::isfinite(plan.predicted_ns));
}

// Brute force doubles with each page.
TEST(Planner, ExactEqualsBruteForceOnRandomRequests) {
    const bool long_form = testing::nightly();
    const uint64_t seeds = long_form ? 100'000 : 4000;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        Case one(prng, long_form ? 20 : 14);
        Planner planner(one.options);
        const Result<Plan> plan = planner.plan(one.request, one.model);
        ASSERT_TRUE(plan.ok());
        expect_valid(plan.value(), one.request, one.model);
        const brute_force::Best best = brute_force::search(one.request, one.options, one.model);
        EXPECT_NEAR(plan.value().predicted_ns, best.serial_ns, best.serial_ns * 1e-9);
        EXPECT_NEAR(plan.value().bound_ns, best.serial_ns, best.serial_ns * 1e-9);
        if (::testing::Test::HasFailure()) return;
    }
}

constexpr Algorithm kAlgorithms[] = {Algorithm::kOverlapped, Algorithm::kExact, Algorithm::kGreedy};

TEST(Planner, EveryPlanIsValidWhateverTheAlgorithm) {
    for (uint64_t seed = 1; seed <= 3000; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        Case one(prng, 200);
        for (const Algorithm algorithm : kAlgorithms) {
            one.options.algorithm = algorithm;
            one.options.coarse = prng.below(2) == 0;
            Planner planner(one.options);
            one.request.direct_asked = prng.below(8) == 0;
            const Result<Plan> plan = planner.plan(one.request, one.model);
            ASSERT_TRUE(plan.ok());
            expect_valid(plan.value(), one.request, one.model);
        }
        if (::testing::Test::HasFailure()) return;
    }
}

// Requests of cells of 64 KiB with costs as disks and memories have them, within a factor of two.
struct RealisticCase {
    Case one;
    explicit RealisticCase(base::Prng& prng) : one(prng, 20) {
        CostModel& model = one.model;
        model = CostModel{};
        if (prng.below(2) == 0) {  // a disk that likes long transfers
            model.cutoff_size = 256 * base::kKiB;
            model.direct_ns = 200e3;
        }
        for (double* number : {&model.direct_ns, &model.direct_ns_per_byte, &model.direct_start_ns,
                               &model.direct_submit_ns, &model.cached_ns, &model.cached_ns_per_byte,
                               &model.buffered_ns, &model.buffered_ns_per_byte})
            *number *= std::exp2(2 * prng.fraction() - 1);
        one.options.page_size = 64 * base::kKiB;
        const uint64_t count = 1 + prng.below(20);
        one.request.range = {0, count * one.options.page_size};
        one.request.memory = 0;
        one.request.direct = {Route::kDirect, 512, 4};
        one.runs.clear();
        bool cached = prng.below(2) == 0;
        const uint64_t mean = 1 + prng.below(6);
        for (uint64_t at = 0; at < one.request.range.size; cached = !cached) {
            const uint64_t size = (1 + prng.below(2 * mean - 1)) * one.options.page_size;
            one.runs.push_back({{at, size}, cached ? Residency::kCached : Residency::kMissing});
            at += size;
        }
        one.request.residency = one.runs;
    }
};

TEST(Planner, GreedyAndOverlappedStayNearTheBest) {
    double greedy = 0, overlapped = 0, overlapped_worst = 0;
    int count = 0;
    for (uint64_t seed = 1; seed <= 3000; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        RealisticCase made(prng);
        Case& one = made.one;
        if (brute_force::nothing_missing(one.request, one.options)) continue;
        ++count;
        const brute_force::Best best = brute_force::search(one.request, one.options, one.model);
        one.options.algorithm = Algorithm::kGreedy;
        Planner rule(one.options);
        greedy += best.serial_ns / rule.plan(one.request, one.model).value().predicted_ns;
        one.options.algorithm = Algorithm::kOverlapped;
        Planner planner(one.options);
        const Plan plan = planner.plan(one.request, one.model).value();
        const double gap = plan.predicted_ns / best.overlapped_ns - 1;
        EXPECT_GE(gap, -1e-9);
        EXPECT_LE(plan.bound_ns, best.overlapped_ns * (1 + 1e-9));
        overlapped += gap;
        overlapped_worst = std::max(overlapped_worst, gap);
    }
    EXPECT_GT(greedy / count, 0.9);
    EXPECT_LT(overlapped / count, 0.005);
    EXPECT_LT(overlapped_worst, 0.05);
    RecordProperty("greedy_mean", std::to_string(greedy / count));
    RecordProperty("overlapped_gap_mean", std::to_string(overlapped / count));
    RecordProperty("overlapped_gap_worst", std::to_string(overlapped_worst));
}

TEST(Planner, CoarseCellsLoseLittle) {
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        Request request;
        request.range = {0, 8 * base::kMiB};
        request.direct = {Route::kDirect, 512, 4};
        std::vector<extent::ResidencyRun> runs;
        const uint64_t mean = 1 + prng.below(300);
        bool cached = false;
        for (uint64_t at = 0; at < request.range.size; cached = !cached) {
            const uint64_t size = 4096 * (1 + prng.below(2 * mean));
            runs.push_back({{at, size}, cached ? Residency::kCached : Residency::kMissing});
            at += size;
        }
        request.residency = runs;
        for (const Algorithm algorithm : {Algorithm::kExact, Algorithm::kOverlapped}) {
            Planner coarse({algorithm});
            Planner fine({algorithm, Residency::kMissing, 4096, false});
            EXPECT_LE(coarse.plan(request, {}).value().predicted_ns,
                      fine.plan(request, {}).value().predicted_ns * 1.1);
        }
    }
}

// One MiB in the middle of a file, all in one state.
struct OneState {
    extent::ResidencyRun run;
    Request request;
    explicit OneState(Residency state, Extent range = {base::kMiB, base::kMiB}) {
        run = {{0, 1 << 30}, state};
        request.range = range;
        request.residency = {&run, 1};
        request.direct = {Route::kDirect, 512, 4};
        request.memory = range.offset;
    }
};

Transfer only_transfer(const Request& request, const Options& options = {}) {
    Planner planner(options);
    const Plan plan = planner.plan(request, {}).value();
    EXPECT_EQ(plan.transfers.size(), 1U);
    return plan.transfers.empty() ? Transfer{} : plan.transfers[0];
}

TEST(Planner, EachStateTakesItsRouteWithItsReason) {
    const Extent range{base::kMiB, base::kMiB};
    EXPECT_EQ(only_transfer(OneState(Residency::kCached).request),
              (Transfer{range, range, Route::kCached, RouteReason::kResident, 0}));
    EXPECT_EQ(only_transfer(OneState(Residency::kMissing).request),
              (Transfer{range, range, Route::kDirect, RouteReason::kMissing, 0}));
    EXPECT_EQ(only_transfer(OneState(Residency::kDirty).request),
              (Transfer{range, range, Route::kCached, RouteReason::kDirty, 0}));
    EXPECT_EQ(only_transfer(OneState(Residency::kUnknown).request).route, Route::kDirect);
    EXPECT_EQ(only_transfer(OneState(Residency::kUnknown).request,
                            {Algorithm::kOverlapped, Residency::kCached})
                  .route,
              Route::kCached);
    Request nothing_known = OneState(Residency::kCached).request;
    nothing_known.residency = {};
    EXPECT_EQ(only_transfer(nothing_known).route, Route::kDirect);
}

TEST(Planner, WhatKeepsARequestOffTheDirectRouteIsSaid) {
    const auto reason_of = [](auto change) {
        OneState one(Residency::kMissing);
        change(one.request);
        const Transfer transfer = only_transfer(one.request);
        EXPECT_EQ(transfer.route, Route::kCached);
        return transfer.reason;
    };
    EXPECT_EQ(reason_of([](Request& r) { r.direct = {}; }), RouteReason::kNotOffered);
    EXPECT_EQ(reason_of([](Request& r) { r.direct.offset_alignment = 768; }),
              RouteReason::kNotOffered);
    EXPECT_EQ(reason_of([](Request& r) { r.direct.offset_alignment = 1U << 31; }),
              RouteReason::kNotOffered);
    EXPECT_EQ(reason_of([](Request& r) { r.memory += 2; }), RouteReason::kBufferMisaligned);
    EXPECT_EQ(reason_of([](Request& r) {
                  r.range = {513, 400}, r.memory = 513;
              }),
              RouteReason::kUnaligned);
    for (const RouteReason because :
         {RouteReason::kSmall, RouteReason::kKeep, RouteReason::kAsked, RouteReason::kRefused})
        EXPECT_EQ(reason_of([&](Request& r) { r.cached_because = because; }), because);
}

TEST(Planner, AskedForDirectIsDirectEvenWhenCachedButNotWhenDirty) {
    OneState cached(Residency::kCached);
    cached.request.direct_asked = true;
    EXPECT_EQ(only_transfer(cached.request),
              (Transfer{cached.request.range, cached.request.range, Route::kDirect,
                        RouteReason::kAsked, base::kMiB}));
    OneState dirty(Residency::kDirty);
    dirty.request.direct_asked = true;
    EXPECT_EQ(only_transfer(dirty.request).reason, RouteReason::kDirty);
}

TEST(Planner, PeerIsADirectRouteOfAnotherName) {
    OneState one(Residency::kMissing);
    one.request.direct.route = Route::kPeer;
    EXPECT_EQ(only_transfer(one.request).route, Route::kPeer);
}

TEST(Planner, UnalignedEndsAreCachedOrReadBeyond) {
    OneState one(Residency::kMissing, {base::kMiB + 13, base::kMiB});
    Planner planner;
    const Plan cut = planner.plan(one.request, {}).value();
    ASSERT_GE(cut.transfers.size(), 3U);
    EXPECT_EQ(cut.transfers.front().range, (Extent{base::kMiB + 13, 512 - 13}));
    EXPECT_EQ(cut.transfers.front().reason, RouteReason::kUnaligned);
    EXPECT_EQ(cut.transfers.back().range, (Extent{2 * base::kMiB, 13}));
    EXPECT_EQ(cut.transfers.back().reason, RouteReason::kUnaligned);
    EXPECT_EQ(cut.transfers[1].moved.offset, base::kMiB + 512);

    one.request.room_before = 13;
    one.request.room_behind = 499;
    const Plan whole = planner.plan(one.request, {}).value();
    for (const Transfer& transfer : whole.transfers) EXPECT_EQ(transfer.route, Route::kDirect);
    EXPECT_EQ(whole.transfers.front().moved.offset, base::kMiB);
    EXPECT_EQ(whole.transfers.back().moved.end(), 2 * base::kMiB + 512);
    EXPECT_EQ(whole.transfers.back().range.end(), one.request.range.end());
}

TEST(Planner, ShortTransferSwallowsWhatIsFree) {
    // One missing page before a hundred cached ones: the transfer may be as long as the cutoff.
    const std::vector<extent::ResidencyRun> runs = {{{0, 4096}, Residency::kMissing},
                                                    {{4096, 409600}, Residency::kCached}};
    Request request;
    request.range = {0, 409600 + 4096};
    request.residency = runs;
    request.direct = {Route::kDirect, 4096, 512};
    Planner planner({Algorithm::kExact, Residency::kMissing, 4096, false});
    CostModel model;
    model.cutoff_size = 256 * base::kKiB;
    model.direct_ns = 90e3;
    model.buffered_ns = 1e9;
    const Plan plan = planner.plan(request, model).value();
    ASSERT_EQ(plan.transfers.size(), 2U);
    EXPECT_EQ(plan.transfers[0].range, (Extent{0, model.cutoff_size}));
    EXPECT_EQ(plan.transfers[0].swallowed_size, model.cutoff_size - 4096);
    EXPECT_EQ(plan.transfers[0].reason, RouteReason::kMissing);
}

TEST(Planner, PredictionsTellWhatCopiesChangeOfDirectTransfers) {
    const std::vector<extent::ResidencyRun> runs = {
        {{0, 4 * base::kMiB}, Residency::kMissing},
        {{4 * base::kMiB, 2 * base::kMiB}, Residency::kCached}};
    Request request;
    request.range = {0, 6 * base::kMiB};
    request.residency = runs;
    request.direct = {Route::kDirect, 4096, 512};
    CostModel model;
    Planner planner;
    const Plan plain = planner.plan(request, model).value();
    EXPECT_EQ(plain.beside_copies, 1);
    ASSERT_GT(plain.direct_ns, plain.copy_ns);
    model.direct_beside_copies = 0.9;
    const Plan quicker = planner.plan(request, model).value();
    EXPECT_NEAR(quicker.predicted_ns, 0.9 * plain.predicted_ns, 1);
    EXPECT_LE(quicker.bound_ns, quicker.predicted_ns);
    // What only submits and waits is as it was measured.
    request.range.size = 4 * base::kMiB;
    const Plan alone = planner.plan(request, model).value();
    EXPECT_EQ(alone.beside_copies, 0);
    EXPECT_EQ(alone.predicted_ns, planner.plan(request, {}).value().predicted_ns);
}

TEST(Planner, PlansWhoseHalvesTakeEquallyLongAreExpectedToTakeLonger) {
    Planner planner;
    CostModel model;
    model.direct_beside_copies = 1;
    const auto plan = [&](uint64_t cached_size) {
        const uint64_t missing_size = 2 * base::kMiB;
        const std::vector<extent::ResidencyRun> runs = {
            {{0, missing_size}, Residency::kMissing},
            {{missing_size, cached_size}, Residency::kCached}};
        Request request;
        request.range = {0, missing_size + cached_size};
        request.residency = std::span(runs).first(cached_size > 0 ? 2 : 1);
        request.direct = {Route::kDirect, 4096, 512};
        return planner.plan(request, model).value();
    };
    const Plan missing = plan(0);
    EXPECT_NEAR(missing.expected_ns, missing.predicted_ns, 1);
    const auto equal_size = static_cast<uint64_t>(missing.direct_ns / model.cached_ns_per_byte);
    const Plan equal = plan(base::align_down(equal_size, 4096));
    EXPECT_GT(equal.expected_ns, 1.15 * equal.predicted_ns);
    EXPECT_LT(equal.expected_ns, 1.26 * equal.predicted_ns);
    const Plan unequal = plan(base::align_down(equal_size / 4, 4096));
    EXPECT_LT(unequal.expected_ns, 1.01 * unequal.predicted_ns);
    // Misses that go through the cache are waited for, not worked beside.
    const Plan waited = [&] {
        Request request;
        const std::vector<extent::ResidencyRun> runs = {{{0, base::kMiB}, Residency::kMissing}};
        request.range = {0, base::kMiB};
        request.residency = runs;
        request.cached_because = RouteReason::kKeep;
        return planner.plan(request, model).value();
    }();
    EXPECT_EQ(waited.expected_ns, waited.predicted_ns);
}

TEST(Planner, HostileRequestsAreRefusedOrPlanned) {
    Planner planner;
    OneState one(Residency::kMissing);
    Request request = one.request;
    const auto error_of = [&](const Extent& range) {
        request.range = range;
        request.memory = range.offset;
        const Result<Plan> plan = planner.plan(request, {});
        if (plan.ok()) expect_valid(plan.value(), request, {});
        return plan.status().error_number();
    };
    constexpr uint64_t kEnd = uint64_t{1} << 63;
    EXPECT_EQ(error_of({0, kRequestSizeMax + 1}), EINVAL);
    EXPECT_EQ(error_of({kEnd - 1, 2}), EINVAL);
    EXPECT_EQ(error_of({UINT64_MAX, UINT64_MAX}), EINVAL);
    EXPECT_EQ(error_of({UINT64_MAX - 4096, 4096}), EINVAL);
    EXPECT_EQ(error_of({kEnd - 4096, 4095}), 0);
    EXPECT_EQ(error_of({kEnd - base::kMiB, base::kMiB - 1}), 0);
    EXPECT_EQ(error_of({0, kRequestSizeMax}), 0);
    EXPECT_EQ(error_of({12345, 0}), 0);
    // Runs out of order, overlapping, beyond the end of everything.
    const std::vector<extent::ResidencyRun> runs = {
        {{UINT64_MAX - 10, UINT64_MAX}, Residency::kDirty},
        {{0, UINT64_MAX}, Residency::kCached},
        {{4096, 0}, Residency::kDirty},
        {{0, 1}, Residency::kMissing},
        {{8192, UINT64_MAX}, Residency::kMissing}};
    for (size_t first = 0; first < runs.size(); ++first) {
        request.residency = std::span(runs).subspan(first);
        const Extent range{1000, 100000};
        request.range = range;
        request.memory = 1000;
        const Plan plan = planner.plan(request, {}).value();
        uint64_t sum = 0;
        for (const Transfer& transfer : plan.transfers) sum += transfer.range.size;
        EXPECT_EQ(sum, range.size);
    }
}

TEST(Planner, HostileModelsStillMakeValidPlans) {
    const double hostile[] = {0, -1, HUGE_VAL, -HUGE_VAL, std::nan(""), 1e300, 1e-300};
    for (uint64_t seed = 1; seed <= 1000; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        Case one(prng, 60);
        for (double* number :
             {&one.model.direct_ns, &one.model.direct_ns_per_byte, &one.model.direct_start_ns,
              &one.model.direct_submit_ns, &one.model.cached_ns, &one.model.cached_ns_per_byte,
              &one.model.buffered_ns, &one.model.buffered_ns_per_byte})
            if (prng.below(3) == 0) *number = hostile[prng.below(std::size(hostile))];
        if (prng.below(3) == 0) one.model.cutoff_size = prng.below(2) == 0 ? 0 : UINT64_MAX;
        if (prng.below(3) == 0) one.model.transfer_size_max = prng.below(2) == 0 ? 0 : UINT64_MAX;
        for (const Algorithm algorithm : kAlgorithms) {
            one.options.algorithm = algorithm;
            one.options.coarse = prng.below(2) == 0;
            Planner planner(one.options);
            expect_valid(planner.plan(one.request, one.model).value(), one.request, one.model);
        }
    }
}

TEST(Planner, HostileOptionsBecomeTheDefaults) {
    const Planner planner({Algorithm::kExact, Residency::kDirty, 1000});
    EXPECT_EQ(planner.options().page_size, 4096U);
    EXPECT_EQ(planner.options().unknown_as, Residency::kMissing);
}

TEST(Planner, TakesNoMemoryOnceItHasSeenTheLongestRequest) {
    for (const Algorithm algorithm : kAlgorithms) {
        Planner planner({algorithm});
        planner.reserve(200 * 64 * base::kKiB);
        for (uint64_t seed = 1; seed <= 300; ++seed) {
            base::Prng prng(seed);
            const Case one(prng, 200);
            const size_t before = base::allocations;
            const Result<Plan> plan = planner.plan(one.request, one.model);
            EXPECT_EQ(base::allocations, before) << "seed " << seed;
            EXPECT_TRUE(plan.ok());
        }
    }
}

}  // namespace
}  // namespace penstock::planner
