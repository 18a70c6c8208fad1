// Goal: the exact algorithm finds the least cost there is; every plan delivers the request exactly
// once, aligned, in transfers of legal size, with dirty pages never direct; the greedy and the
// overlapped algorithm stay as near to the best as is said; no input, however hostile, breaks that.
#include "planner/planner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "planner/brute_force_fixture.h"

namespace penstock::planner {
namespace {

using brute_force::Case;
using extent::Extent;
using extent::Residency;
using extent::Route;
using extent::RouteReason;

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

TEST(Planner, ExactEqualsBruteForceOnRandomRequests) {
    for (uint64_t seed = 1; seed <= 4000; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        Case one(prng, 14);
        Planner planner(one.options);
        const Result<Plan> plan = planner.plan(one.request, one.model);
        ASSERT_TRUE(plan.ok());
        expect_valid(plan.value(), one.request, one.model);
        const brute_force::Best best = brute_force::search(one.request, one.options, one.model);
        EXPECT_NEAR(plan.value().predicted_ns, best.serial_ns, best.serial_ns * 1e-9);
        EXPECT_NEAR(plan.value().bound_ns, best.serial_ns, best.serial_ns * 1e-9);
        if (testing::Test::HasFailure()) return;
    }
}

}  // namespace
}  // namespace penstock::planner
