// Goal: extents behave as the sets of bytes they stand for; checked against a bitmap over all small
// cases and over random lists.
#include "extent/extent.h"

#include <gtest/gtest.h>

#include <bitset>
#include <vector>

#include "base/prng.h"

namespace penstock::extent {
namespace {

constexpr uint64_t kSpan = 64;
using Bytes = std::bitset<kSpan>;

Bytes bytes_of(const Extent& extent) {
    Bytes bytes;
    for (uint64_t i = extent.offset; i < extent.end(); ++i) bytes.set(i);
    return bytes;
}

std::vector<Extent> every_small_extent() {
    std::vector<Extent> all;
    for (uint64_t offset = 0; offset < 6; ++offset) {
        for (uint64_t size = 0; size < 5; ++size) all.push_back({offset, size});
    }
    return all;
}

TEST(Extent, PairsAgreeWithSetsOfBytes) {
    for (const Extent& a : every_small_extent()) {
        for (const Extent& b : every_small_extent()) {
            const Bytes shared = bytes_of(a) & bytes_of(b);
            EXPECT_EQ(overlap(a, b), shared.any());
            EXPECT_EQ(bytes_of(intersect(a, b)), shared);
            EXPECT_EQ(adjacent(a, b), a.end() == b.offset || b.end() == a.offset);
            const Bytes both = bytes_of(a) | bytes_of(b);
            EXPECT_EQ(bytes_of(cover(a, b)) & both, both);
            if (shared.any()) {
                EXPECT_EQ(bytes_of(cover(a, b)), both);
            }
        }
        for (uint64_t i = 0; i < kSpan; ++i) EXPECT_EQ(a.contains(i), bytes_of(a).test(i));
    }
}

TEST(Extent, TheLastByteOfTheLargestFileIsInReach) {
    const Extent last{INT64_MAX - 1, 1};
    EXPECT_TRUE(last.contains(INT64_MAX - 1));
    EXPECT_FALSE(last.contains(INT64_MAX));
    EXPECT_TRUE(overlap(last, {0, INT64_MAX}));
    EXPECT_TRUE(adjacent(last, {0, INT64_MAX - 1}));
}

TEST(Extent, MergedRunsCoverTheSameBytesAndStayApart) {
    for (uint64_t seed = 1; seed <= 500; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        std::vector<Extent> list(prng.below(12));
        Bytes before;
        for (Extent& extent : list) {
            extent.offset = prng.below(kSpan - 8);
            extent.size = prng.below(8);
            before |= bytes_of(extent);
        }
        std::sort(list.begin(), list.end(),
                  [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
        list.resize(merge_sorted(list));
        Bytes after;
        for (size_t i = 0; i < list.size(); ++i) {
            after |= bytes_of(list[i]);
            EXPECT_FALSE(list[i].empty());
            if (i > 0) {
                EXPECT_LT(list[i - 1].end(), list[i].offset);
            }
        }
        EXPECT_EQ(before, after);
    }
}

TEST(Extent, JoiningStopsAtTheBound) {
    std::vector<Extent> pages = {{0, 4}, {4, 4}, {8, 4}, {12, 4}, {20, 4}};
    pages.resize(merge_sorted(pages, 8));
    EXPECT_EQ(pages, (std::vector<Extent>{{0, 8}, {8, 8}, {20, 4}}));
    std::vector<Extent> longer = {{0, 100}, {100, 4}};
    longer.resize(merge_sorted(longer, 8));
    EXPECT_EQ(longer, (std::vector<Extent>{{0, 100}, {100, 4}}));
}

}  // namespace
}  // namespace penstock::extent
