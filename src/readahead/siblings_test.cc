// Goal: streams that begin after three have ended are told exactly from their first access on, in
// whatever order they come; odd ones among them do no lasting harm, and what does not fit is left.
#include "readahead/siblings.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/prng.h"

namespace penstock::readahead {
namespace {

using access::Access;

// Block `rank` reads 8 tiles of a row of its own, in two columns.
std::vector<Access> tiles(uint64_t rank) {
    std::vector<Access> all;
    for (int64_t i = 0; i < 2; ++i) {
        for (int64_t j = 0; j < 4; ++j) {
            all.push_back({static_cast<int64_t>(rank) * 65536 + i * (1 << 30) + j * 8192, 4096});
        }
    }
    return all;
}

// Runs a stream; returns how many of its accesses were told exactly.
size_t run(Siblings& siblings, uint64_t rank, const std::vector<Access>& accesses) {
    const std::unique_ptr<Predictor> stream = siblings.begin(rank);
    size_t right = 0;
    for (const Access& one : accesses) {
        Access next;
        right += stream->predict_from(0, {&next, 1}) == 1 && next == one ? 1 : 0;
        stream->observe(one, 0);
    }
    std::array<Access, 4> rest;
    if (right + 1 == accesses.size()) {
        EXPECT_EQ(stream->predict_from(0, rest), 0U) << "the end is known";
    }
    return right;
}

TEST(Siblings, AreToldFromTheirFirstAccessOnceThreeHaveEnded) {
    for (uint64_t seed = 1; seed <= 50; ++seed) {
        base::Prng prng(seed);
        Siblings siblings;
        for (int i = 0; i < 3; ++i) {
            EXPECT_FALSE(siblings.program());
            const uint64_t rank = 10 * prng.below(100) + static_cast<uint64_t>(i);
            run(siblings, rank, tiles(rank));
        }
        ASSERT_TRUE(siblings.program()) << "seed " << seed;
        for (int i = 0; i < 20; ++i) {
            const uint64_t rank = prng.below(1 << 20);
            EXPECT_EQ(run(siblings, rank, tiles(rank)), 7U) << "seed " << seed << " rank " << rank;
        }
    }
}

TEST(Siblings, AnOddOneAmongTheFirstDelaysThemOnly) {
    Siblings siblings;
    run(siblings, 0, tiles(0));
    run(siblings, 1, {{77, 5}, {12, 9}});
    for (uint64_t rank = 2; rank < 5; ++rank) run(siblings, rank, tiles(rank));
    EXPECT_EQ(run(siblings, 999, tiles(999)), 7U);
}

// Blocks of a grid of 4 columns: rows are 1 MiB apart, columns 100 KiB.
std::vector<Access> plane(uint64_t rank) {
    std::vector<Access> all = tiles(0);
    for (Access& one : all) {
        one.offset += static_cast<int64_t>(rank / 4 * (1 << 20) + rank % 4 * 102'400);
    }
    return all;
}

TEST(Siblings, ADiagonalOfAPlaneIsTakenForALineAndFoundOut) {
    Siblings siblings;
    for (const uint64_t rank : {5, 2, 8}) run(siblings, rank, plane(rank));
    ASSERT_TRUE(siblings.program());
    EXPECT_EQ(run(siblings, 3, plane(3)), 6U) << "its first access puts it right";
    for (uint64_t rank = 9; rank < 9 + Siblings::kMisfitsMax + Siblings::kGrid; ++rank) {
        run(siblings, rank, plane(rank));
    }
    for (const uint64_t rank : {3, 40, 1001}) EXPECT_EQ(run(siblings, rank, plane(rank)), 7U);
}

TEST(Siblings, PlanesNeedEight) {
    Siblings siblings;
    for (const uint64_t rank : {0, 5, 3, 8, 7, 1, 10, 6}) {
        EXPECT_FALSE(siblings.program());
        run(siblings, rank, plane(rank));
    }
    ASSERT_TRUE(siblings.program());
    for (const uint64_t rank : {2, 4, 11, 40, 1001}) {
        EXPECT_EQ(run(siblings, rank, plane(rank)), 7U) << rank;
    }
}

TEST(Siblings, WhatDoesNotFitIsGivenUpAndNeverTold) {
    base::Prng prng(1);
    Siblings siblings;
    for (uint64_t rank = 0; rank < 2 * Siblings::kSamplesMax; ++rank) {
        std::vector<Access> all;
        for (int i = 0; i < 20; ++i) {
            all.push_back({static_cast<int64_t>(prng.below(uint64_t{1} << 40)), 4096});
        }
        EXPECT_EQ(run(siblings, rank, all), 0U);
        EXPECT_FALSE(siblings.program());
    }
}

TEST(Siblings, AnotherProgramIsLearnedInPlaceOfTheFirst) {
    Siblings siblings;
    for (uint64_t rank = 0; rank < 5; ++rank) run(siblings, rank, tiles(rank));
    const auto other = [](uint64_t rank) {
        std::vector<Access> all;
        for (int64_t i = 0; i < 30; ++i) {
            all.push_back({static_cast<int64_t>(rank) * 5'000'000 + i * 7777, 1000});
        }
        return all;
    };
    for (uint64_t rank = 5; rank < 5 + Siblings::kMisfitsMax + Siblings::kGrid; ++rank) {
        run(siblings, rank, other(rank));
    }
    EXPECT_EQ(run(siblings, 999, other(999)), 29U);
}

TEST(Siblings, AProgramOfAnEarlierRunServesTheFirstStream) {
    Siblings first;
    for (uint64_t rank = 0; rank < 3; ++rank) run(first, rank, tiles(rank));
    ASSERT_TRUE(first.program());
    Siblings second(*first.program());
    EXPECT_EQ(run(second, 500, tiles(500)), 7U);
}

TEST(Siblings, LongStreamsAreNotRecordedToTheEnd) {
    Siblings siblings;
    for (uint64_t rank = 0; rank < 5; ++rank) {
        std::vector<Access> all;
        for (int64_t i = 0; i < 2000; ++i) all.push_back({i * 4096, 4096});
        run(siblings, rank, all);
    }
    EXPECT_FALSE(siblings.program());
}

}  // namespace
}  // namespace penstock::readahead
