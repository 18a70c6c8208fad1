// Goal: the plan of a write covers it without gap or overlap, is direct for whole pages only and
// only where somebody asked, and says why, for every alignment of small ranges.
#include <gtest/gtest.h>

#include "planner/planner.h"

namespace penstock::planner {
namespace {

WritePlan plan(uint64_t begin, uint64_t size, uint32_t alignment, bool asked) {
    WriteRequest request;
    request.range = {begin, size};
    request.direct.offset_alignment = alignment;
    request.page_size = 16;
    request.direct_asked = asked;
    return plan_write(request);
}

TEST(PlanWrite, EveryRangeOfAFewPagesIsCoveredByWholePagesAndEdges) {
    for (const uint32_t alignment : {4u, 16u, 32u}) {
        const uint64_t grain = std::max(alignment, 16u);
        for (uint64_t begin = 0; begin < 70; ++begin) {
            for (uint64_t size = 0; size < 130; ++size) {
                const WritePlan made = plan(begin, size, alignment, true);
                uint64_t at = begin, direct = 0;
                for (size_t i = 0; i < made.count; ++i) {
                    const Transfer& transfer = made.transfers[i];
                    ASSERT_EQ(transfer.range.offset, at);
                    ASSERT_GT(transfer.range.size, 0u);
                    ASSERT_EQ(transfer.moved, transfer.range);
                    at = transfer.range.end();
                    if (transfer.route == Route::kCached) {
                        EXPECT_EQ(transfer.reason, RouteReason::kUnaligned);
                        continue;
                    }
                    EXPECT_EQ(transfer.reason, RouteReason::kAsked);
                    EXPECT_EQ(transfer.range.offset % grain, 0u);
                    EXPECT_EQ(transfer.range.size % grain, 0u);
                    direct += transfer.range.size;
                }
                ASSERT_EQ(at, begin + size);
                const uint64_t first = (begin + grain - 1) / grain, last = (begin + size) / grain;
                ASSERT_EQ(direct, last > first ? (last - first) * grain : 0);
            }
        }
    }
}

TEST(PlanWrite, GoesThroughTheCacheUnlessSomebodyAsksAndStorageOffers) {
    const WritePlan unasked = plan(0, 64, 16, false);
    ASSERT_EQ(unasked.count, 1u);
    EXPECT_EQ(unasked.transfers[0].route, Route::kCached);
    EXPECT_EQ(unasked.transfers[0].reason, RouteReason::kDeferred);
    for (const uint32_t none : {0u, 3u}) {
        const WritePlan made = plan(0, 64, none, true);
        ASSERT_EQ(made.count, 1u);
        EXPECT_EQ(made.transfers[0].reason, RouteReason::kNotOffered);
    }
    const WritePlan far = plan(INT64_MAX - 20, 20, 16, true);
    EXPECT_EQ(far.transfers[far.count - 1].range.end(), uint64_t{INT64_MAX});
}

}  // namespace
}  // namespace penstock::planner
