// Goal: small reads of a hot file are not looked at; of one that misses they soon go the quicker
// way, whichever that is, and follow when it changes.
#include "transfer/small_reads.h"

#include <gtest/gtest.h>

namespace penstock::transfer {
namespace {

constexpr uint64_t kSize = 64 << 10;
constexpr uint64_t kHotNs = 7'000;

// Reads that all miss, at the cost of the way they go; the share that went direct of the last half.
double share_direct(SmallReads* reads, int count, uint64_t cached_ns, uint64_t direct_ns) {
    int direct = 0;
    for (int i = 0; i < count; ++i) {
        const Route way = reads->way();
        if (i >= count / 2) direct += way == Route::kDirect;
        reads->tally(kSize, way == Route::kDirect ? direct_ns : cached_ns, false);
    }
    return direct / (count / 2.0);
}

TEST(SmallReads, HotReadsAreNotSlowAndReadsOfADiskAre) {
    EXPECT_FALSE(SmallReads::slow(kSize, kHotNs));
    EXPECT_TRUE(SmallReads::slow(kSize, 60'000));
}

TEST(SmallReads, ASlowReadRaisesDoubtAndHitsDispelIt) {
    SmallReads reads;
    reads.suspect();
    EXPECT_TRUE(reads.doubtful());
    int looked_at = 0;
    while (reads.doubtful() && looked_at < 1000) {
        reads.tally(kSize, kHotNs, true);
        ++looked_at;
    }
    EXPECT_LT(looked_at, 20);
    // After a miss it takes longer.
    reads.suspect();
    reads.tally(kSize, 100'000, false);
    for (int i = 0; i < 100; ++i) reads.tally(kSize, kHotNs, true);
    EXPECT_TRUE(reads.doubtful());
}

TEST(SmallReads, TheQuickerWayIsFoundWhicheverItIs) {
    SmallReads direct_wins;
    EXPECT_GT(share_direct(&direct_wins, 2000, 150'000, 70'000), 0.9);
    SmallReads cached_wins;
    EXPECT_LT(share_direct(&cached_wins, 2000, 30'000, 70'000), 0.1);
}

TEST(SmallReads, AChangeIsFollowed) {
    SmallReads reads;
    EXPECT_GT(share_direct(&reads, 500, 150'000, 70'000), 0.9);
    EXPECT_LT(share_direct(&reads, 4000, 30'000, 70'000), 0.2);
    EXPECT_GT(share_direct(&reads, 4000, 150'000, 70'000), 0.8);
}

TEST(SmallReads, PlansThatFindAllCachedDispelDoubt) {
    SmallReads reads;
    reads.planned(true);
    EXPECT_FALSE(reads.doubtful());
    reads.planned(false);
    EXPECT_TRUE(reads.doubtful());
    int hits = 0;
    for (; reads.doubtful() && hits < 1000; ++hits) reads.planned(true);
    EXPECT_GT(hits, 50);
    EXPECT_LT(hits, 1000);
    reads.planned(true);
    EXPECT_FALSE(reads.doubtful());
}

TEST(SmallReads, ABatchIsSlowByItsMean) {
    SmallReads reads;
    reads.saw_batch(32, 32 * 4096, 32 * 700);
    EXPECT_FALSE(reads.slow_batches());
    reads.saw_batch(32, 32 * 4096, 32 * 70'000);
    EXPECT_TRUE(reads.slow_batches());
    EXPECT_FALSE(reads.doubtful()) << "reads one by one are told by their own time";
    reads.saw_batch(32, 32 * 4096, 31 * 1200 + 70'000);
    EXPECT_FALSE(reads.slow_batches()) << "one miss among them";
    reads.saw_batch(1, 0, 100);
    EXPECT_FALSE(reads.slow_batches()) << "the end of the file";
}

// What was in the cache before must not speak for the cached way: only the hits that follow a miss
// count.
TEST(SmallReads, HitsBeforeAMissCountForNobody) {
    SmallReads reads;
    int direct = 0, misses = 0;
    for (int i = 0; i < 4000; ++i) {
        if (i % 128 < 64) {
            reads.tally(kSize, kHotNs, true);
            continue;
        }
        const Route way = reads.way();
        reads.tally(kSize, way == Route::kDirect ? 60'000 : 160'000, false);
        ++misses;
        direct += way == Route::kDirect;
    }
    EXPECT_GT(direct, misses * 8 / 10);
}

// A kernel that reads far ahead: of 128 reads one misses, and is quick with it; a hit among the
// others waits for what is read ahead. The whole of it counts, not what follows the miss.
TEST(SmallReads, AHitThatWaitsForWhatIsReadAheadCounts) {
    const auto share = [](uint64_t slow_hit_ns) {
        SmallReads reads;
        int direct = 0;
        constexpr int kCount = 40'000;
        for (int i = 0; i < kCount; ++i) {
            const bool past = reads.way() == Route::kDirect;
            if (i >= kCount / 2) direct += past;
            if (past) {
                reads.tally(kSize, 57'000, false);
            } else if (i % 128 == 0) {
                reads.tally(kSize, 100'000, false);
            } else {
                reads.tally(kSize, i % 128 == 64 ? slow_hit_ns : kHotNs, true);
            }
        }
        return direct / (kCount / 2.0);
    };
    EXPECT_GT(share(15'000'000), 0.9);  // 125 us a read
    EXPECT_LT(share(2'000'000), 0.1);   // 23 us a read
}

}  // namespace
}  // namespace penstock::transfer
