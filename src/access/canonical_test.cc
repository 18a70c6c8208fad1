// Goal: the canonical form has the very accesses of the program, and programs that differ only in
// what canonical.h names become equal.
#include "access/canonical.h"

#include <gtest/gtest.h>

#include "access/json.h"
#include "access/linear_form.h"
#include "access/node_tree.h"
#include "access/programs_fixture.h"
#include "access/validate.h"

namespace penstock::access {
namespace {

std::string text(const Program& program) { return write_json({&program, 1}); }

TEST(Canonical, KeepsTheAccessesOfRandomPrograms) {
    size_t compared = 0, shorter = 0;
    for (uint64_t seed = 1; seed <= 4000; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const Program program = random_program(seed);
        if (!validate(program).ok()) continue;
        const Program folded = canonical(program);
        ASSERT_TRUE(validate(folded).ok()) << text(folded);
        ASSERT_TRUE(canonical(folded) == folded) << text(folded) << text(canonical(folded));
        for (uint64_t rank = 0; rank < std::min<uint64_t>(program.key.rank_count, 3); ++rank) {
            const Expansion before = expand(program, rank, 4000);
            if (!before.complete) continue;
            const Expansion after = expand(folded, rank, 4000);
            ++compared;
            ASSERT_TRUE(before.accesses == after.accesses && before.endless == after.endless)
                << text(program) << text(folded);
        }
        shorter += folded.nodes.size() < program.nodes.size();
    }
    std::printf("%zu compared, %zu programs became shorter\n", compared, shorter);
    EXPECT_GT(compared, 2000u);
}

// Writes a loop of constant trips in another way. False: this one cannot be.
bool rewrite(std::vector<NodeTree>* body, size_t at, size_t level, base::Prng* prng) {
    const NodeTree loop = (*body)[at];
    const int64_t trips = loop.node.trips.base;
    if (loop.node.kind != NodeKind::kLoop || loop.node.trips != Affine{trips, {}, {}}) return false;
    const auto turns = [&](int64_t from, int64_t to) {
        std::vector<NodeTree> out;
        for (int64_t index = from; index < to; ++index) {
            for (NodeTree tree : loop.body) {
                EXPECT_TRUE(fix_index(&tree, level, index));
                out.push_back(tree);
            }
        }
        return out;
    };
    const auto part = [&](int64_t from, int64_t to) {
        NodeTree shorter = loop;
        EXPECT_TRUE(move_start(&shorter, level, from));
        shorter.node.trips.base = to - from;
        return shorter;
    };
    std::vector<NodeTree> out;
    const int64_t cut = 1 + static_cast<int64_t>(prng->below(static_cast<uint64_t>(trips - 1)));
    switch (prng->below(4)) {
        case 0:
            out = turns(0, trips);
            break;
        case 1:
            out = {part(0, cut), part(cut, trips)};
            break;
        case 2:
            out = turns(0, 1);
            out.push_back(part(1, trips));
            break;
        default:
            out = {part(0, trips - 1)};
            for (const NodeTree& tree : turns(trips - 1, trips)) out.push_back(tree);
    }
    const auto place = body->erase(body->begin() + static_cast<ptrdiff_t>(at));
    body->insert(place, out.begin(), out.end());
    return true;
}

// A rectangular nest or two of accesses with trips from 3 on, no two alike.
Program plain_program(base::Prng* prng) {
    Program program;
    const auto number = [prng](uint64_t low, uint64_t high) {
        return static_cast<int64_t>(low + prng->below(high - low));
    };
    for (uint64_t nests = 1 + prng->below(2); nests > 0; --nests) {
        const size_t depth = prng->below(4), count = 1 + prng->below(2);
        for (size_t d = 0; d < depth; ++d) {
            Node& loop = program.nodes.emplace_back();
            loop.kind = NodeKind::kLoop;
            loop.trips.base = number(3, 6);
            loop.body = static_cast<uint32_t>(depth - 1 - d + count);
        }
        for (size_t i = 0; i < count; ++i) {
            Node& access = program.nodes.emplace_back();
            access.offset.base = number(0, 1 << 30);
            access.size.base = number(1, 1 << 20);
            for (size_t d = 0; d < depth; ++d) access.offset.per_loop[d] = number(0, 1 << 24);
        }
    }
    return program;
}

TEST(Canonical, LoopsWrittenInAnotherWayBecomeEqual) {
    size_t compared = 0;
    for (uint64_t seed = 1; seed <= 6000; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        const Program program = plain_program(&prng);
        std::vector<NodeTree> trees = trees_of(program.nodes);
        for (int i = 0; i < 2; ++i) {
            std::vector<NodeTree>* body = &trees;
            size_t level = 0, at = prng.below(body->size());
            while (prng.below(2) == 0 && !(*body)[at].body.empty()) {
                body = &(*body)[at].body;
                at = prng.below(body->size());
                ++level;
            }
            if (!rewrite(body, at, level, &prng)) break;
            if (i == 0 && prng.below(2) == 0) break;
        }
        Program other = program;
        other.nodes = nodes_of(trees);
        if (!validate(other).ok()) continue;  // more than 64 nodes
        ++compared;
        ASSERT_TRUE(canonical(other) == canonical(program))
            << text(other) << text(canonical(other)) << text(canonical(program));
    }
    std::printf("%zu compared\n", compared);
    EXPECT_GT(compared, 4000u);
}

TEST(Canonical, EqualWaysToWriteTheSameAccesses) {
    Node unit = access(100, 8);
    unit.kind = NodeKind::kDeltas;
    unit.trips.base = 4;
    unit.deltas = {{16, 0}, {16, 0}};
    Node list = access(36, 8);
    list.kind = NodeKind::kList;
    for (int64_t i = 0; i < 9; ++i) list.list.push_back({64 + 16 * i, 0});
    Node nothing = unit;
    nothing.trips.base = -3;
    Node skipped;
    skipped.kind = NodeKind::kRandom;
    skipped.trips.base = -1;
    const Program strided = program_of({loop(1, 9), access(100, 8, {16})});
    const std::vector<Program> same = {
        program_of({unit}),
        program_of({list}),
        program_of({loop(2, 3), loop(1, 3), access(100, 8, {48, 16})}),
        program_of({loop(2, 1), loop(1, 9), access(100, 8, {999, 16})}),
        program_of({nothing, loop(1, 8), access(116, 8, {16})}),
        program_of({skipped, loop(1, 4), access(100, 8, {16}), access(164, 8), loop(1, 4),
                    access(180, 8, {16})}),
        program_of({loop(1, 0), access(5, 5), loop(1, 9), access(100, 8, {16})}),
    };
    EXPECT_TRUE(canonical(strided) == strided);
    for (const Program& program : same) {
        ASSERT_TRUE(validate(program).ok()) << validate(program).message();
        EXPECT_TRUE(canonical(program) == strided) << text(program) << text(canonical(program));
    }
    // The same place again and again, and again.
    EXPECT_TRUE(canonical(program_of({loop(2, 5), loop(1, 4), access(7, 7)})) ==
                program_of({loop(1, 20), access(7, 7)}));
}

TEST(ForRank, HasTheAccessesOfThatRank) {
    for (uint64_t seed = 1; seed <= 500; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const Program program = random_program(seed);
        if (!validate(program).ok()) continue;
        const uint64_t rank = base::Prng(seed).below(program.key.rank_count);
        auto one = for_rank(program, rank);
        ASSERT_TRUE(one.ok());
        ASSERT_TRUE(expand(one.value(), 0, 2000).accesses == expand(program, rank, 2000).accesses);
    }
}

}  // namespace
}  // namespace penstock::access
