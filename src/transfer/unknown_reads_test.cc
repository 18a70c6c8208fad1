// Goal: files that nobody may ask about are read through the page cache exactly as long as that is
// fast, and are tried again when it has not been.
#include "transfer/unknown_reads.h"

#include <gtest/gtest.h>

namespace penstock::transfer {
namespace {

constexpr double kCopyNs = 100;

TEST(UnknownReads, TheFirstDecides) {
    UnknownReads fast;
    EXPECT_TRUE(fast.tries_cached());
    fast.saw(kCopyNs, kCopyNs);
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(fast.tries_cached());

    UnknownReads slow;
    EXPECT_TRUE(slow.tries_cached());
    slow.saw(8 * kCopyNs, kCopyNs);
    EXPECT_FALSE(slow.tries_cached());
}

TEST(UnknownReads, OneSlowReadAmongFastOnesChangesNothing) {
    UnknownReads reads;
    for (int i = 0; i < 100; ++i) {
        ASSERT_TRUE(reads.tries_cached()) << i;
        reads.saw(i % 2 == 1 ? 100 * kCopyNs : kCopyNs, kCopyNs);
    }
    reads.saw(8 * kCopyNs, kCopyNs);
    reads.saw(8 * kCopyNs, kCopyNs);
    EXPECT_FALSE(reads.tries_cached()) << "evicted meanwhile";
}

TEST(UnknownReads, AColdFileIsTriedEverMoreSeldomAndAWarmOneFound) {
    UnknownReads reads;
    int tries = 0;
    for (int i = 0; i < 10'000; ++i) {
        if (!reads.tries_cached()) continue;
        ++tries;
        reads.saw(8 * kCopyNs, kCopyNs);
    }
    EXPECT_GE(tries, 10);
    EXPECT_LE(tries, 20);
    int reads_until = 0;
    while (!reads.tries_cached()) ASSERT_LE(++reads_until, 1024);
    reads.saw(kCopyNs, kCopyNs);
    EXPECT_TRUE(reads.tries_cached());
}

}  // namespace
}  // namespace penstock::transfer
