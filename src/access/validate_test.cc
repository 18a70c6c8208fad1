// Goal: no program that passes has an access out of bounds at any rank, no rectangular program in
// bounds is refused, every limit is refused with its own line, and hostile values break nothing.
#include "access/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "access/cursor.h"
#include "access/programs_fixture.h"

namespace penstock::access {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

bool in_bounds_at_all_ranks(const Program& program, bool* complete) {
    const uint64_t first = program.key.first_rank;
    for (uint64_t rank = first; rank < first + program.key.rank_count; ++rank) {
        const Expansion expansion = expand(program, rank, 20000);
        *complete &= expansion.complete;
        if (!expansion.in_bounds) return false;
    }
    return true;
}

TEST(Validate, PassesNothingOutOfBoundsAndRefusesNoRectangularProgramWithin) {
    size_t passed = 0, refused = 0;
    for (uint64_t seed = 1; seed <= 2000; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const bool rectangular = seed % 2 == 0;
        Program program = random_program(seed, {.triangular = !rectangular});
        base::Prng prng(seed);
        // Closer to the edges than the fixture goes.
        for (Node& node : program.nodes) {
            if (node.kind == NodeKind::kLoop || node.kind == NodeKind::kRandom) continue;
            if (prng.below(3) == 0) node.offset.base -= static_cast<int64_t>(prng.below(30000));
            if (prng.below(20) == 0) node.offset.base += kMax - 100000;
        }
        // Any of the ranks. The bounds are exact for all of them.
        const bool all_ranks = prng.below(2) == 0;
        if (!all_ranks) {
            program.key.first_rank = prng.below(program.key.rank_count);
            program.key.rank_count = 1 +
                                     prng.below(program.key.rank_count - program.key.first_rank);
        }
        bool complete = true;
        const bool within = in_bounds_at_all_ranks(program, &complete);
        if (!complete) continue;
        const Status status = validate(program);
        ++(status.ok() ? passed : refused);
        ASSERT_TRUE(within || !status.ok());
        ASSERT_TRUE(status.ok() || !within || !rectangular || !all_ranks) << status.message();
    }
    std::printf("%zu passed, %zu refused\n", passed, refused);
    EXPECT_GT(passed, 500u);
    EXPECT_GT(refused, 300u);
}

Program strided() {
    Program program;
    program.nodes.resize(2);
    program.nodes[0].kind = NodeKind::kLoop;
    program.nodes[0].body = 1;
    program.nodes[0].trips.base = 10;
    program.nodes[1].offset.per_loop[0] = 4096;
    program.nodes[1].size.base = 512;
    return program;
}

struct Refusal {
    const char* text;  // what the line says
    std::function<void(Program*)> spoil;
};

TEST(Validate, EachLimitIsRefusedWithItsOwnLine) {
    const auto nested = [](Program* p, size_t loops) {
        p->nodes.assign(loops + 1, {});
        for (size_t i = 0; i < loops; ++i) {
            p->nodes[i].kind = NodeKind::kLoop;
            p->nodes[i].body = static_cast<uint32_t>(loops - i);
            p->nodes[i].trips.base = 2;
        }
    };
    const std::vector<Refusal> refusals = {
        {"more than 64 nodes", [](Program* p) { p->nodes.assign(65, {}); }},
        {"nest deeper than 4", [&](Program* p) { nested(p, 5); }},
        {"longer than what it is in", [](Program* p) { p->nodes[0].body = 2; }},
        {"longer than what it is in", [](Program* p) { p->nodes[0].body = UINT32_MAX; }},
        {"a loop without a body", [](Program* p) { p->nodes[0].body = 0; }},
        {"a body of what is no loop", [](Program* p) { p->nodes[1].body = 1; }},
        {"no such kind", [](Program* p) { p->nodes[1].kind = static_cast<NodeKind>(9); }},
        {"a list without accesses", [](Program* p) { p->nodes[1].kind = NodeKind::kList; }},
        {"without deltas", [](Program* p) { p->nodes[1].kind = NodeKind::kDeltas; }},
        {"a list in what is no list", [](Program* p) { p->nodes[1].list.resize(1); }},
        {"deltas in what is no", [](Program* p) { p->nodes[1].deltas.resize(1); }},
        {"more than 32 deltas",
         [](Program* p) {
             p->nodes[1].kind = NodeKind::kDeltas;
             p->nodes[1].deltas.resize(33);
         }},
        {"more than 65536 accesses in lists",
         [](Program* p) {
             p->nodes[1].kind = NodeKind::kList;
             p->nodes[1].list.resize(kListMax + 1);
         }},
        {"trips of what does not repeat", [](Program* p) { p->nodes[1].trips.base = 1; }},
        {"of what is no access", [](Program* p) { p->nodes[0].offset.base = 1; }},
        {"not around", [](Program* p) { p->nodes[1].offset.per_loop[1] = 1; }},
        {"not around", [](Program* p) { p->nodes[0].trips.per_loop[0] = 1; }},
        {"more than 2^40 trips", [](Program* p) { p->nodes[0].trips.base = kMax; }},
        {"trips overflow", [](Program* p) { p->nodes[0].trips.base = kMin; }},
        {"an offset may be negative", [](Program* p) { p->nodes[1].offset.base = -1; }},
        {"an offset may be negative", [](Program* p) { p->nodes[1].offset.per_loop[0] = -1; }},
        {"a size may be negative", [](Program* p) { p->nodes[1].size.per_loop[0] = -57; }},
        {"beyond 2^63", [](Program* p) { p->nodes[1].offset.base = kMax - 9 * 4096 - 511; }},
        {"beyond 2^63", [](Program* p) { p->nodes[1].offset.per_loop[0] = kMax; }},
        {"beyond 2^63", [](Program* p) { p->nodes[1].size.base = kMax; }},
        {"dimension of the process grid is 0", [](Program* p) { p->grid[1] = 0; }},
        {"more than 2^63 places",
         [](Program* p) {
             p->grid = {UINT64_MAX, UINT64_MAX, 2};
         }},
        {"a stream of no rank", [](Program* p) { p->key.rank_count = 0; }},
        {"a rank beyond 2^63", [](Program* p) { p->key.first_rank = UINT64_MAX; }},
        {"no place in the grid",
         [](Program* p) {
             p->grid = {2, 2, 1};
             p->key.rank_count = 5;
         }},
        {"confidence", [](Program* p) { p->provenance.confidence = 1.5; }},
        {"confidence", [](Program* p) { p->provenance.confidence = std::nan(""); }},
        {"think time", [](Program* p) { p->nodes[0].think.mean_ns = -1; }},
        {"no such operation", [](Program* p) { p->key.operation = static_cast<Operation>(3); }},
        {"no such origin", [](Program* p) { p->provenance.origin = static_cast<Origin>(3); }},
        {"too long", [](Program* p) { p->key.file.assign(4097, 'x'); }},
        {"a zero byte", [](Program* p) { p->key.file = std::string("a\0b", 3); }},
        {"without an end",
         [](Program* p) {
             p->nodes[1] = {};
             p->nodes[1].kind = NodeKind::kRandom;
         }},
        {"more than 2^62 accesses",
         [&](Program* p) {
             nested(p, 2);
             p->nodes[0].trips.base = p->nodes[1].trips.base = int64_t{1} << 40;
         }},
        {"cannot be counted",
         [&](Program* p) {
             nested(p, 3);
             p->nodes[2].trips.per_loop = {-1, -2, 0, 0};
         }},
    };
    ASSERT_TRUE(validate(strided()).ok());
    for (const Refusal& refusal : refusals) {
        Program program = strided();
        refusal.spoil(&program);
        const Status status = validate(program);
        EXPECT_EQ(status.error_number(), EINVAL) << refusal.text;
        EXPECT_THAT(status.message(), ::testing::HasSubstr(refusal.text));
    }
}

TEST(Validate, TheLastByteBelowTheLimitPasses) {
    Program program = strided();
    program.nodes[1].offset.base = kMax - 9 * 4096 - 512;
    EXPECT_TRUE(validate(program).ok());
    program.nodes[0].trips.base = -5;  // counts as 0
    program.nodes[1].offset.base = kMin;
    EXPECT_TRUE(validate(program).ok());
    EXPECT_EQ(Cursor(program).count(), 0u);
    EXPECT_TRUE(validate(Program{}).ok());
}

// Any values at all: refused, or safe to walk. The sanitizers say whether arithmetic overflowed.
TEST(Validate, HostileValuesAreRefusedOrHarmless) {
    static constexpr int64_t kValues[] = {
        kMin,     kMin + 1, -1, 0, 1, 2, int64_t{1} << 40, int64_t{1} << 41, int64_t{1} << 62,
        kMax - 1, kMax};
    size_t passed = 0;
    for (uint64_t seed = 1; seed <= 20000; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        Program program = random_program(seed);
        base::Prng prng(seed);
        for (uint64_t i = prng.below(6); i > 0 && !program.nodes.empty(); --i) {
            Node& node = program.nodes[prng.below(program.nodes.size())];
            Affine* const affines[] = {&node.offset, &node.size, &node.trips};
            Affine& affine = *affines[prng.below(3)];
            const int64_t value = kValues[prng.below(std::size(kValues))];
            const uint64_t which = prng.below(8);
            (which == 0  ? affine.base
             : which < 5 ? affine.per_loop[which - 1]
                         : affine.per_rank[which - 5]) = value;
        }
        if (!validate(program).ok()) continue;
        ++passed;
        Cursor cursor(program, prng.below(program.key.rank_count));
        const uint64_t count = cursor.count().value_or(1000);
        for (const uint64_t position : {uint64_t{0}, count / 2, count - 1, count, prng.next()}) {
            cursor.seek(position);
            for (int i = 0; i < 20; ++i) {
                const std::optional<Access> access = cursor.next();
                if (!access) break;
                ASSERT_GE(access->offset, 0);
                ASSERT_GE(access->size, 0);
            }
        }
        EXPECT_FALSE(cursor.contains(UINT64_MAX));
    }
    std::printf("%zu passed\n", passed);
    EXPECT_GT(passed, 1000u);
}

TEST(Validate, ThereIsOneZero) {
    // With two, equal programs would have different binary forms.
    Program program;
    program.nodes.emplace_back().think = {5, 0.0, 3};
    ASSERT_TRUE(validate(program).ok());
    program.nodes[0].think.deviation_ns = -0.0;
    EXPECT_FALSE(validate(program).ok());
    program.nodes[0].think.deviation_ns = 0;
    program.provenance.confidence = -0.0;
    EXPECT_FALSE(validate(program).ok());
}

}  // namespace
}  // namespace penstock::access
