// Goal: the small things that everything stands on do what their one line says.
#include <gtest/gtest.h>

#include "base/bounded.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/prng.h"
#include "base/units.h"

namespace penstock::base {
namespace {

TEST(Check, NamesTheInvariantInOneLine) {
    PENSTOCK_CHECK(1 + 1 == 2, "sums hold");
    EXPECT_DEATH(PENSTOCK_CHECK(1 + 1 == 3, "sums hold"),
                 "penstock: .*base_test.cc:[0-9]+: sums hold \\(1 \\+ 1 == 3 does not hold\\)");
}

TEST(Units, RoundToPowersOfTwo) {
    static_assert(is_power_of_two(1) && is_power_of_two(kGiB));
    static_assert(!is_power_of_two(0) && !is_power_of_two(kGiB + 1));
    static_assert(align_down(8191, 4096) == 4096 && align_up(4097, 4096) == 8192);
    static_assert(align_up(4096, 4096) == 4096 && align_up(0, 4096) == 0);
}

TEST(Clock, SleepsToTheDeadlineAndNotBefore) {
    for (const uint64_t length_ns : {uint64_t{0}, uint64_t{50'000}, uint64_t{5'000'000}}) {
        const uint64_t deadline_ns = monotonic_ns() + length_ns;
        sleep_until_ns(deadline_ns);
        EXPECT_GE(monotonic_ns(), deadline_ns);
    }
}

// The figures of the published reference for seed 1234567: runs can be replayed anywhere.
TEST(Prng, GivesThePublishedSequence) {
    Prng prng(1234567);
    EXPECT_EQ(prng.next(), 6457827717110365317u);
    EXPECT_EQ(prng.next(), 3203168211198807973u);
    EXPECT_EQ(prng.next(), 9817491932198370423u);
}

TEST(Prng, StaysBelowItsBoundAndReachesAllOfIt) {
    Prng prng(1);
    int seen[7] = {};
    for (int i = 0; i < 1000; ++i) {
        const uint64_t value = prng.below(7);
        ASSERT_LT(value, 7u);
        ++seen[value];
        const double fraction = prng.fraction();
        ASSERT_TRUE(fraction >= 0 && fraction < 1);
    }
    for (const int count : seen) EXPECT_GT(count, 100);
}

TEST(BoundedQueue, KeepsOrderRoundAndRound) {
    BoundedQueue<int> queue(3);
    int pushed = 0;
    int popped = 0;
    Prng prng(5);
    for (int i = 0; i < 1000; ++i) {
        if (queue.size() < queue.capacity() && (queue.empty() || prng.below(2) == 0)) {
            queue.push(pushed++);
        } else {
            ASSERT_EQ(queue.pop(), popped++);
        }
        ASSERT_EQ(queue.size(), static_cast<size_t>(pushed - popped));
    }
    EXPECT_DEATH(for (int i = 0; i < 9; ++i) queue.push(i), "fed more than its bound");
}

}  // namespace
}  // namespace penstock::base
