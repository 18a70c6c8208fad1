// Goal: never more than a quarter of the cache is lent; the scale follows demand's delay through
// every state, one step at a time, and back.
#include "readahead/budget.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/prng.h"

namespace penstock::readahead {
namespace {

TEST(Budget, LendsAQuarterOfTheCache) {
    base::Prng prng(1);
    Budget budget(1 << 20);
    uint64_t lent = 0;
    for (int i = 0; i < 10'000; ++i) {
        const uint64_t size = prng.below(100'000);
        if (prng.below(2) == 0) {
            const bool fits = lent + size <= (1 << 18);
            EXPECT_EQ(budget.reserve(size), fits);
            lent += fits ? size : 0;
        } else {
            const uint64_t back = std::min(size, lent);
            budget.release(back);
            lent -= back;
        }
        ASSERT_EQ(budget.reserved(), lent);
    }
    EXPECT_FALSE(budget.reserve(UINT64_MAX));
}

TEST(Budget, TrustIsLentUntilItIsGoneAndComesBack) {
    Budget budget(1 << 20);
    EXPECT_EQ(budget.lend_trust(60'000), 60'000U);
    EXPECT_EQ(budget.lend_trust(60'000), (1U << 16) - 60'000);
    EXPECT_EQ(budget.lend_trust(1), 0U);
    budget.return_trust(1000);
    EXPECT_EQ(budget.trust(), 1000U);
    EXPECT_EQ(budget.lend_trust(UINT64_MAX), 1000U);
}

void wait(Budget& budget, uint64_t delay_ns, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) budget.demand_waited(delay_ns);
}

TEST(Budget, EveryStateIsReachedOneHalvingAtATimeAndLeftTheSameWay) {
    Budget budget(1 << 20);
    wait(budget, 100'000, 200);
    EXPECT_EQ(budget.scale(), 1);
    for (uint32_t halvings = 1; halvings <= Budget::kHalvingsMax + 2; ++halvings) {
        const double before = budget.scale();
        wait(budget, 1'000'000, Budget::kReports);
        EXPECT_EQ(budget.scale(), std::max(before / 2, 1.0 / 16)) << halvings;
    }
    double last = budget.scale();
    for (int i = 0; i < 400; ++i) {
        budget.demand_waited(100'000);
        EXPECT_TRUE(budget.scale() == last || budget.scale() == 2 * last);
        last = budget.scale();
    }
    EXPECT_EQ(last, 1);
}

TEST(Budget, DelaysUnderOneAndAHalfTimesTheIdleOneAndNoiseOfMicrosecondsAreCalm) {
    Budget near(1 << 20);
    wait(near, 100'000, 100);
    wait(near, 145'000, 300);
    EXPECT_EQ(near.scale(), 1);
    Budget noise(1 << 20);
    wait(noise, 0, 100);
    wait(noise, Budget::kDelayFloorNs, 300);
    EXPECT_EQ(noise.scale(), 1);
}

TEST(Budget, AStorageThatGotSlowerForGoodIsCalmAgainAtLast) {
    Budget budget(1 << 20);
    wait(budget, 100'000, 100);
    wait(budget, 1'000'000, 100);
    EXPECT_LT(budget.scale(), 1);
    wait(budget, 1'000'000, 20'000);
    EXPECT_EQ(budget.scale(), 1);
}

}  // namespace
}  // namespace penstock::readahead
