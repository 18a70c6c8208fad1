// Goal: programs of ranks that differ linearly, on a line or in a grid, become one that gives each
// rank its accesses exactly; others are refused and leave what was there alone.
#include <gtest/gtest.h>

#include "access/detector.h"
#include "access/patterns_fixture.h"
#include "access/validate.h"

namespace penstock::access {
namespace {

using patterns::access;
using patterns::along;
using patterns::loop;

std::vector<Access> expand(const Program& program, uint64_t rank) {
    Cursor cursor(program, rank);
    std::vector<Access> out;
    while (const std::optional<Access> next = cursor.next()) out.push_back(*next);
    return out;
}

// The streams that `make` gives for each of the ranks are analysed and fitted.
template <class Make>
bool fit(const std::vector<uint64_t>& ranks, Make make, Program* out) {
    std::vector<Program> programs;
    for (const uint64_t rank : ranks)
        programs.push_back(analyse(patterns::expand(make(static_cast<int64_t>(rank))), {}));
    if (!fit_ranks(programs, ranks, out)) return false;
    EXPECT_TRUE(validate(*out).ok()) << validate(*out).message();
    for (const uint64_t rank : ranks) {
        EXPECT_EQ(expand(*out, rank), patterns::expand(make(static_cast<int64_t>(rank))))
            << "rank " << rank;
    }
    return true;
}

std::vector<uint64_t> line(uint64_t count) {
    std::vector<uint64_t> ranks;
    for (uint64_t rank = 0; rank < count; ++rank) ranks.push_back(rank);
    return ranks;
}

TEST(FitRanks, a_line_of_ranks) {
    Program program;
    ASSERT_TRUE(fit(
        line(16),
        [](int64_t rank) {
            return std::vector<Node>{loop(along(40), 1),
                                     access(along(rank * 5308416, {42448320}), along(4096))};
        },
        &program));
    EXPECT_EQ(program.grid, (std::array<uint64_t, kGridMax>{16, 1, 1}));
    EXPECT_EQ(program.nodes[1].offset.per_rank[0], 5308416);
    // Ranks that were not seen are told too.
    EXPECT_EQ(program.key.rank_count, 16u);
}

TEST(FitRanks, ranks_from_one_on_without_a_place_for_rank_0) {
    Program program;
    // Rank 0 would begin before the file.
    ASSERT_TRUE(fit(
        {1, 2, 3, 4},
        [](int64_t rank) {
            return std::vector<Node>{loop(along(40), 1),
                                     access(along((rank - 1) * 4096, {16384}), along(4096))};
        },
        &program));
    EXPECT_EQ(program.key.first_rank, 1u);
    EXPECT_EQ(program.nodes[1].offset.base, -4096);
    program.key.first_rank = 0;
    EXPECT_FALSE(validate(program).ok());
}

TEST(FitRanks, some_ranks_of_a_line_whose_sizes_and_trips_differ) {
    Program program;
    ASSERT_TRUE(fit(
        {3, 9, 5},
        [](int64_t rank) {
            return std::vector<Node>{loop(along(10 + rank), 1),
                                     access(along(1 << 20, {65536}), along(100 + 7 * rank))};
        },
        &program));
    EXPECT_EQ(program.nodes[0].trips.per_rank[0], 1);
    EXPECT_EQ(program.key.first_rank, 3u);
    EXPECT_EQ(program.key.rank_count, 7u);
}

TEST(FitRanks, tiles_of_a_plane_and_blocks_of_a_space) {
    Program program;
    ASSERT_TRUE(fit(
        line(12),
        [](int64_t rank) {
            return std::vector<Node>{
                loop(along(20), 1),
                access(along(rank % 4 * 1000 + rank / 4 * 777777, {65536}), along(512))};
        },
        &program));
    EXPECT_EQ(program.grid[0], 4u);
    ASSERT_TRUE(fit(
        line(60),
        [](int64_t rank) {
            return std::vector<Node>{
                loop(along(20), 1),
                access(
                    along(rank % 3 * 1000 + rank / 3 % 4 * 777777 + rank / 12 * 123456789, {65536}),
                    along(512))};
        },
        &program));
    EXPECT_EQ(program.grid, (std::array<uint64_t, kGridMax>{3, 4, 5}));
}

TEST(FitRanks, lists_that_are_only_moved) {
    Program program;
    ASSERT_TRUE(fit(
        line(5),
        [](int64_t rank) {
            std::vector<Node> nodes;
            for (const int64_t offset : {5, 900, 70, 40000, 1234, 777})
                nodes.push_back(access(along(offset + rank * 100000), along(offset)));
            return nodes;
        },
        &program));
    ASSERT_EQ(program.nodes.size(), 1u);
    EXPECT_EQ(program.nodes[0].kind, NodeKind::kList);
}

TEST(FitRanks, what_is_not_linear_is_refused) {
    Program program;
    program.key.file = "left alone";
    EXPECT_FALSE(fit(
        line(12),
        [](int64_t rank) {
            return std::vector<Node>{loop(along(20), 1),
                                     access(along(rank * rank * rank, {65536}), along(512))};
        },
        &program));
    EXPECT_FALSE(fit(
        line(3),
        [](int64_t rank) {
            return std::vector<Node>{loop(along(20), 1),
                                     access(along(0, {65536 + rank}), along(512))};
        },
        &program));
    EXPECT_FALSE(fit(
        line(2),
        [](int64_t rank) {
            return rank == 0 ? patterns::lu(9)
                             : std::vector<Node>{loop(along(20), 1),
                                                 access(along(0, {65536}), along(512))};
        },
        &program));
    EXPECT_FALSE(fit_ranks({}, {}, &program));
    EXPECT_EQ(program.key.file, "left alone");
}

TEST(FitRanks, ranks_beyond_any_grid_are_a_line_or_refused_at_once) {
    std::vector<Program> programs(3);
    const auto make = [&](uint64_t i, int64_t offset) {
        programs[i].nodes = {loop(along(20), 1), access(along(offset, {65536}), along(512))};
    };
    constexpr uint64_t kFar = (uint64_t{1} << 40) - 3;
    make(0, 0);
    make(1, 1000);
    make(2, static_cast<int64_t>(kFar) * 1000);
    Program program;
    const std::vector<uint64_t> ranks = {0, 1, kFar};
    ASSERT_TRUE(fit_ranks(programs, ranks, &program));
    EXPECT_EQ(program.nodes[1].offset.per_rank[0], 1000);
    EXPECT_TRUE(validate(program).ok()) << validate(program).message();
    make(2, 12345);
    EXPECT_FALSE(fit_ranks(programs, ranks, &program));
    for (const uint64_t rank : {uint64_t{1} << 62, uint64_t{1} << 63, UINT64_MAX}) {
        const std::vector<uint64_t> far = {0, 1, rank};
        EXPECT_FALSE(fit_ranks(programs, far, &program));
    }
}

}  // namespace
}  // namespace penstock::access
