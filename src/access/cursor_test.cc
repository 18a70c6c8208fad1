// Goal: the cursor walks, counts, seeks and finds bytes as a plain expansion of the program does,
// for any program that validate() lets pass; and at positions that no expansion reaches.
#include "access/cursor.h"

#include <gtest/gtest.h>

#include <set>

#include "access/programs_fixture.h"
#include "access/validate.h"

namespace penstock::access {
namespace {

constexpr size_t kAccessesMax = 3000;

// From wherever the cursor is: as expected up to the first access of a random node.
void expect_rest(Cursor* cursor, const Expansion& expected, size_t from, size_t count_max) {
    for (size_t i = from; i < expected.accesses.size() && i < from + count_max; ++i) {
        ASSERT_EQ(cursor->position(), i);
        const std::optional<Access> got = cursor->next();
        if (expected.accesses[i] == kUnknown) {
            ASSERT_FALSE(got.has_value());
            ASSERT_TRUE(cursor->random());
            return;
        }
        ASSERT_TRUE(got.has_value()) << "access " << i;
        ASSERT_FALSE(got->offset != expected.accesses[i].offset ||
                     got->size != expected.accesses[i].size)
            << "access " << i << ": " << got->offset << "+" << got->size << ", not "
            << expected.accesses[i].offset << "+" << expected.accesses[i].size;
    }
}

void expect_walks(const Program& program, uint64_t rank, const Expansion& expected,
                  base::Prng* prng) {
    const size_t count = expected.accesses.size();
    Cursor cursor(program, rank);
    ASSERT_EQ(cursor.count(), expected.endless ? std::nullopt : std::optional<uint64_t>(count));
    expect_rest(&cursor, expected, 0, count);
    for (int i = 0; i < 20; ++i) {
        const size_t position = prng->below(count + 2);
        SCOPED_TRACE(::testing::Message() << "seek " << position);
        ASSERT_EQ(cursor.seek(position), position < count || expected.endless);
        expect_rest(&cursor, expected, position, 40);
    }
    if (expected.endless) return;
    ASSERT_FALSE(cursor.seek(count));
    ASSERT_EQ(cursor.position(), count);
    ASSERT_FALSE(cursor.next().has_value());
    ASSERT_FALSE(cursor.random());
}

void expect_contains(const Program& program, uint64_t rank, const Expansion& expected,
                     base::Prng* prng) {
    const Cursor cursor(program, rank);
    std::set<uint64_t> bytes = {0, 1, uint64_t{1} << 62, UINT64_MAX};
    for (int i = 0; i < 60; ++i) {
        bytes.insert(prng->below(120000));
        if (expected.accesses.empty()) continue;
        const Access& near = expected.accesses[prng->below(expected.accesses.size())];
        if (near == kUnknown) continue;
        const uint64_t offset = static_cast<uint64_t>(near.offset);
        bytes.insert({offset, offset - 1, offset + static_cast<uint64_t>(near.size)});
    }
    for (const uint64_t byte : bytes) {
        const auto touches = [byte](const Access& one) {
            const uint64_t offset = static_cast<uint64_t>(one.offset);
            return one != kUnknown && byte >= offset &&
                   byte - offset < static_cast<uint64_t>(one.size);
        };
        const bool there = std::any_of(expected.accesses.begin(), expected.accesses.end(), touches);
        ASSERT_EQ(cursor.contains(byte), there) << "byte " << byte;
    }
}

TEST(Cursor, WalksRandomProgramsAsAPlainExpansionDoes) {
    uint64_t compared = 0, accesses = 0, triangular = 0;
    for (uint64_t seed = 1; seed <= 8000; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const Program program = random_program(seed);
        if (!validate(program).ok()) continue;
        base::Prng prng(seed);
        const uint64_t rank = prng.below(program.key.rank_count);
        const Expansion expected = expand(program, rank, kAccessesMax);
        if (!expected.complete) continue;
        ASSERT_TRUE(expected.in_bounds);
        ++compared;
        accesses += expected.accesses.size();
        for (const Node& node : program.nodes)
            triangular += node.trips.per_loop != Affine{}.per_loop;
        ASSERT_NO_FATAL_FAILURE(expect_walks(program, rank, expected, &prng));
        ASSERT_NO_FATAL_FAILURE(expect_contains(program, rank, expected, &prng));
    }
    std::printf("%lu programs, %lu accesses, %lu nodes with trips that depend on a loop\n",
                compared, accesses, triangular);
    EXPECT_GT(compared, 4000u);
    EXPECT_GT(triangular, 3000u);
}

// The golden nest of the paper: outer step k reads ((k+1)*524544, 524544), k pieces, (0, 522368).
TEST(Cursor, CountsAndSeeksInTheTriangularNestOfOutOfCoreLu) {
    Node pieces = access(524544, 518272, {0, 524544});
    pieces.size.per_loop[1] = -4096;
    const Program program = program_of({loop(4, 125), access(2 * 524544, 524544, {524544}),
                                        loop(1, 1, {1}), pieces, access(0, 522368)});
    ASSERT_TRUE(validate(program).ok()) << validate(program).message();
    Cursor cursor(program);
    EXPECT_EQ(cursor.count(), 8125u);
    std::vector<Access> expected;
    for (int64_t k = 1; k <= 125; ++k) {
        expected.push_back({(k + 1) * 524544, 524544});
        for (int64_t j = 1; j <= k; ++j) {
            expected.push_back({j * 524544, 518272 - 4096 * (j - 1)});
        }
        expected.push_back({0, 522368});
    }
    ASSERT_EQ(expected.size(), 8125u);
    std::vector<Access> got(8200);
    EXPECT_EQ(cursor.next(got), 8125u);
    got.resize(8125);
    EXPECT_TRUE(got == expected);
    for (uint64_t position = 0; position < 8125; position += 7) {
        ASSERT_TRUE(cursor.seek(position));
        ASSERT_TRUE(cursor.next() == expected[position]) << position;
    }
}

// Trips up to 2^40: nothing here may walk.
TEST(Cursor, HugeNestsAreCountedAndSoughtInClosedForm) {
    const int64_t n = int64_t{1} << 20;
    const Program program = program_of(
        {loop(3, n), loop(2, 1, {1}), loop(1, 3), access(0, 1, {4096, 8, 1})});
    ASSERT_TRUE(validate(program).ok()) << validate(program).message();
    Cursor cursor(program);
    const uint64_t count = 3 * (static_cast<uint64_t>(n) * static_cast<uint64_t>(n + 1) / 2);
    EXPECT_EQ(cursor.count(), count);
    ASSERT_TRUE(cursor.seek(count - 1));
    EXPECT_EQ(cursor.next()->offset, (n - 1) * 4096 + (n - 1) * 8 + 2);
    EXPECT_FALSE(cursor.next().has_value());
    // The 1000th row begins behind 3 * (1 + ... + 999) accesses.
    ASSERT_TRUE(cursor.seek(3 * 999 * 1000 / 2));
    EXPECT_EQ(cursor.next()->offset, 999 * 4096);
    EXPECT_FALSE(cursor.seek(UINT64_MAX));
    EXPECT_EQ(cursor.position(), count);
}

// 2^40 turns of which only a few have accesses, at either end.
TEST(Cursor, EmptyTurnsAreNotWalkedOver) {
    const int64_t huge = int64_t{1} << 40;
    const Program shrinking = program_of({loop(2, huge), loop(1, 3, {-1}), access(7, 1, {10, 1})});
    ASSERT_TRUE(validate(shrinking).ok()) << validate(shrinking).message();
    Cursor early(shrinking);
    std::vector<Access> got(10);
    EXPECT_EQ(early.count(), 6u);
    EXPECT_EQ(early.next(got), 6u);
    EXPECT_TRUE(got[5] == (Access{27, 1}));

    const Program growing = program_of(
        {loop(2, huge), loop(1, 3 - huge, {1}), access(7, 1, {10, 1}), access(5, 5)});
    ASSERT_TRUE(validate(growing).ok()) << validate(growing).message();
    Cursor late(growing);
    EXPECT_EQ(late.count(), 4u);
    EXPECT_EQ(late.next(got), 4u);
    EXPECT_EQ(got[2].offset, 7 + 10 * (huge - 1) + 1);
    EXPECT_TRUE(got[3] == (Access{5, 5}));
}

TEST(Cursor, ContainsDividesStridesOutOfHugeNests) {
    const Program program = program_of(
        {loop(3, 1 << 20), loop(2, 1 << 10), loop(1, 4), access(100, 8, {1 << 24, 1 << 13, 64})});
    ASSERT_TRUE(validate(program).ok());
    const Cursor cursor(program);
    const uint64_t inside = 100 + (uint64_t{777777} << 24) + (uint64_t{1023} << 13) + 3 * 64 + 7;
    EXPECT_TRUE(cursor.contains(inside));
    EXPECT_FALSE(cursor.contains(inside + 1));
    EXPECT_FALSE(cursor.contains(99));
    EXPECT_FALSE(cursor.contains(uint64_t{1} << 60));
    // Columns first: the inner stride is the longer one.
    const Program columns = program_of(
        {loop(2, 1 << 20), loop(1, 1 << 20), access(0, 4, {8, 1 << 23})});
    ASSERT_TRUE(validate(columns).ok());
    EXPECT_TRUE(Cursor(columns).contains((uint64_t{99} << 23) + 8 * 12345 + 3));
    EXPECT_FALSE(Cursor(columns).contains((uint64_t{99} << 23) + 8 * 12345 + 4));
}

TEST(Cursor, StopsAtARandomNodeAndGoesOnBehindIt) {
    Node random;
    random.kind = NodeKind::kRandom;
    random.trips.base = 5;
    const Program program = program_of({access(1, 1), random, access(2, 2)});
    Cursor cursor(program);
    EXPECT_EQ(cursor.count(), 7u);
    EXPECT_TRUE(cursor.next() == (Access{1, 1}));
    EXPECT_TRUE(cursor.random());
    EXPECT_FALSE(cursor.next().has_value());
    EXPECT_EQ(cursor.position(), 1u);
    ASSERT_TRUE(cursor.seek(6));
    EXPECT_FALSE(cursor.random());
    EXPECT_TRUE(cursor.next() == (Access{2, 2}));
}

}  // namespace
}  // namespace penstock::access
