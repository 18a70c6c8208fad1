// Goal: small reads of a hot file are not probed. Those that miss soon take the faster route,
// whichever that is, and follow when it changes. Files of unknown residency are read through the
// page cache exactly as long as that is fast, and are tried again when it has not been.
#include "transfer/route_trial.h"

#include <gtest/gtest.h>

namespace penstock::transfer {
namespace {

constexpr uint64_t kSize = 64 << 10;
constexpr uint64_t kHotNs = 7'000;

// Records reads that all miss, each at the time of its route. Returns the share of direct reads in
// the last half.
double share_direct(RouteTrial* reads, int count, uint64_t cached_ns, uint64_t direct_ns) {
    int direct = 0;
    for (int i = 0; i < count; ++i) {
        const Route route = reads->route();
        if (i >= count / 2) direct += route == Route::kDirect;
        reads->record(kSize, route == Route::kDirect ? direct_ns : cached_ns, false);
    }
    return direct / (count / 2.0);
}

TEST(RouteTrial, HotReadsAreNotSlowAndReadsOfADiskAre) {
    EXPECT_FALSE(RouteTrial::is_slow(kSize, kHotNs));
    EXPECT_TRUE(RouteTrial::is_slow(kSize, 60'000));
}

TEST(RouteTrial, ASlowReadStartsProbingAndHitsEndIt) {
    RouteTrial reads;
    reads.start_probing();
    EXPECT_TRUE(reads.probing());
    int probes = 0;
    while (reads.probing() && probes < 1000) {
        reads.record(kSize, kHotNs, true);
        ++probes;
    }
    EXPECT_LT(probes, 20);
    // After a miss it takes longer.
    reads.start_probing();
    reads.record(kSize, 100'000, false);
    for (int i = 0; i < 100; ++i) reads.record(kSize, kHotNs, true);
    EXPECT_TRUE(reads.probing());
}

TEST(RouteTrial, TheFasterRouteIsFoundWhicheverItIs) {
    RouteTrial direct_wins;
    EXPECT_GT(share_direct(&direct_wins, 2000, 150'000, 70'000), 0.9);
    RouteTrial cached_wins;
    EXPECT_LT(share_direct(&cached_wins, 2000, 30'000, 70'000), 0.1);
}

TEST(RouteTrial, AChangeIsFollowed) {
    RouteTrial reads;
    EXPECT_GT(share_direct(&reads, 500, 150'000, 70'000), 0.9);
    EXPECT_LT(share_direct(&reads, 4000, 30'000, 70'000), 0.2);
    EXPECT_GT(share_direct(&reads, 4000, 150'000, 70'000), 0.8);
}

TEST(RouteTrial, PlansThatFindAllCachedEndProbing) {
    RouteTrial reads;
    reads.record_plan(true);
    EXPECT_FALSE(reads.probing());
    reads.record_plan(false);
    EXPECT_TRUE(reads.probing());
    int hits = 0;
    for (; reads.probing() && hits < 1000; ++hits) reads.record_plan(true);
    EXPECT_GT(hits, 50);
    EXPECT_LT(hits, 1000);
    reads.record_plan(true);
    EXPECT_FALSE(reads.probing());
}

TEST(RouteTrial, ABatchIsSlowByItsMean) {
    RouteTrial reads;
    reads.record_batch(32, 32 * 4096, 32 * 700);
    EXPECT_FALSE(reads.slow_batches());
    reads.record_batch(32, 32 * 4096, 32 * 70'000);
    EXPECT_TRUE(reads.slow_batches());
    EXPECT_FALSE(reads.probing()) << "reads one by one are told by their own time";
    reads.record_batch(32, 32 * 4096, 31 * 1200 + 70'000);
    EXPECT_FALSE(reads.slow_batches()) << "one miss among them";
    reads.record_batch(1, 0, 100);
    EXPECT_FALSE(reads.slow_batches()) << "the end of the file";
}

// What was in the cache before must not speak for the cached route: only the hits that follow a
// miss count.
TEST(RouteTrial, HitsBeforeAMissDoNotCount) {
    RouteTrial reads;
    int direct = 0, misses = 0;
    for (int i = 0; i < 4000; ++i) {
        if (i % 128 < 64) {
            reads.record(kSize, kHotNs, true);
            continue;
        }
        const Route route = reads.route();
        reads.record(kSize, route == Route::kDirect ? 60'000 : 160'000, false);
        ++misses;
        direct += route == Route::kDirect;
    }
    EXPECT_GT(direct, misses * 8 / 10);
}

// A kernel that reads far ahead: of 128 reads one misses, and is quick with it; a hit among the
// others waits for what is read ahead. The whole of it counts, not what follows the miss.
TEST(RouteTrial, AHitThatWaitsForWhatIsReadAheadCounts) {
    const auto share = [](uint64_t slow_hit_ns) {
        RouteTrial reads;
        int direct = 0;
        constexpr int kCount = 40'000;
        for (int i = 0; i < kCount; ++i) {
            const bool past = reads.route() == Route::kDirect;
            if (i >= kCount / 2) direct += past;
            if (past) {
                reads.record(kSize, 57'000, false);
            } else if (i % 128 == 0) {
                reads.record(kSize, 100'000, false);
            } else {
                reads.record(kSize, i % 128 == 64 ? slow_hit_ns : kHotNs, true);
            }
        }
        return direct / (kCount / 2.0);
    };
    EXPECT_GT(share(15'000'000), 0.9);  // 125 us a read
    EXPECT_LT(share(2'000'000), 0.1);   // 23 us a read
}

constexpr double kCopyNs = 100;

TEST(RouteTrial, TheFirstUnknownReadDecides) {
    RouteTrial fast;
    EXPECT_TRUE(fast.tries_cached());
    fast.record_unknown(kCopyNs, kCopyNs);
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(fast.tries_cached());

    RouteTrial slow;
    EXPECT_TRUE(slow.tries_cached());
    slow.record_unknown(8 * kCopyNs, kCopyNs);
    EXPECT_FALSE(slow.tries_cached());
}

TEST(RouteTrial, OneSlowUnknownReadAmongFastOnesChangesNothing) {
    RouteTrial reads;
    for (int i = 0; i < 100; ++i) {
        ASSERT_TRUE(reads.tries_cached()) << i;
        reads.record_unknown(i % 2 == 1 ? 100 * kCopyNs : kCopyNs, kCopyNs);
    }
    reads.record_unknown(8 * kCopyNs, kCopyNs);
    reads.record_unknown(8 * kCopyNs, kCopyNs);
    EXPECT_FALSE(reads.tries_cached()) << "evicted meanwhile";
}

TEST(RouteTrial, AColdFileIsTriedEverMoreSeldomAndAWarmOneFound) {
    RouteTrial reads;
    int tries = 0;
    for (int i = 0; i < 10'000; ++i) {
        if (!reads.tries_cached()) continue;
        ++tries;
        reads.record_unknown(8 * kCopyNs, kCopyNs);
    }
    EXPECT_GE(tries, 10);
    EXPECT_LE(tries, 20);
    int reads_until = 0;
    while (!reads.tries_cached()) ASSERT_LE(++reads_until, 1024);
    reads.record_unknown(kCopyNs, kCopyNs);
    EXPECT_TRUE(reads.tries_cached());
}

}  // namespace
}  // namespace penstock::transfer
