// Goal: analyse() recovers exactly the accesses that it was given, in a program that is no longer
// than the one that made them and has the same canonical form: for the patterns of the slides and
// papers, and for random programs of the classes that can be detected.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "access/canonical.h"
#include "access/detector.h"
#include "access/patterns_fixture.h"
#include "access/validate.h"
#include "testing/effort.h"

namespace penstock::access {
namespace {

using patterns::expand;

std::string describe(const std::vector<Node>& nodes) {
    std::string text;
    for (const Node& node : nodes) {
        text += "  " + std::string(1, "ALDTR"[static_cast<int>(node.kind)]) + " body " +
                std::to_string(node.body) + " trips " + std::to_string(node.trips.base);
        for (const int64_t step : node.trips.per_loop) text += " " + std::to_string(step);
        text += " offset " + std::to_string(node.offset.base);
        for (const int64_t step : node.offset.per_loop) text += " " + std::to_string(step);
        text += " size " + std::to_string(node.size.base) + " deltas " +
                std::to_string(node.deltas.size()) + " list " + std::to_string(node.list.size()) +
                "\n";
    }
    return text;
}

size_t length(const std::vector<Node>& nodes) {
    size_t sum = nodes.size();
    for (const Node& node : nodes) sum += node.list.size();
    return sum;
}

TEST(Analyse, golden_patterns_come_back_exactly) {
    for (const patterns::Pattern& pattern : patterns::golden()) {
        const std::vector<Access> accesses = expand(pattern.nodes);
        const Program found = analyse(accesses, {});
        EXPECT_EQ(expand(found.nodes), accesses) << pattern.name;
        EXPECT_LE(length(found.nodes), std::max(length(pattern.nodes), size_t{2}))
            << pattern.name << "\n"
            << describe(found.nodes);
        EXPECT_EQ(found.provenance.confidence, 1.0);
        EXPECT_TRUE(validate(found).ok()) << pattern.name << " " << validate(found).message();
    }
}

TEST(Analyse, a_stride_is_a_loop_however_long) {
    for (int64_t trips = 4; trips < 40; ++trips) {
        const std::vector<Node> nodes = {
            patterns::loop(patterns::along(trips), 1),
            patterns::access(patterns::along(4096, {8192}), patterns::along(2048))};
        EXPECT_EQ(analyse(expand(nodes), {}).nodes, nodes) << trips;
    }
}

TEST(Analyse, lu_is_its_nest_from_the_first_turn) {
    const std::vector<Node> nodes = patterns::lu(125);
    const std::vector<Access> accesses = expand(nodes);
    ASSERT_EQ(accesses.size(), 8125u);
    const Program found = analyse(accesses, {});
    EXPECT_EQ(found.nodes, nodes) << describe(found.nodes);
}

TEST(Analyse, random_programs_come_back_exactly) {
    const char* chosen = std::getenv("PENSTOCK_SEED");
    const uint64_t first = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 1;
    const uint64_t count = chosen != nullptr ? 1 : testing::nightly() ? 20000 : 400;
    for (uint64_t seed = first; seed < first + count; ++seed) {
        const std::vector<Node> nodes = patterns::Generator(seed).program();
        const std::vector<Access> accesses = expand(nodes);
        const Program found = analyse(accesses, {});
        ASSERT_EQ(expand(found.nodes), accesses) << "PENSTOCK_SEED=" << seed;
        ASSERT_TRUE(validate(found).ok())
            << "PENSTOCK_SEED=" << seed << " " << validate(found).message();
        Program made;
        made.nodes = nodes;
        ASSERT_TRUE(canonical(found).nodes == canonical(made).nodes)
            << "PENSTOCK_SEED=" << seed << "\n"
            << describe(canonical(made).nodes) << "found\n"
            << describe(canonical(found).nodes);
        ASSERT_LE(length(found.nodes), length(nodes))
            << "PENSTOCK_SEED=" << seed << " replays this program alone\nmade from\n"
            << describe(nodes) << "found\n"
            << describe(found.nodes);
    }
}

TEST(Analyse, second_differences_are_no_nest) {
    // A stride that grows: published code calls it two-dimensional. Three turns are no proof.
    std::vector<Access> accesses;
    for (int64_t i = 0; i < 40; ++i) accesses.push_back({i * (i + 1) / 2 * 512, 512});
    const Program found = analyse(accesses, {});
    EXPECT_EQ(expand(found.nodes), accesses);
    for (const Node& node : found.nodes) EXPECT_NE(node.kind, NodeKind::kLoop);
}

TEST(Analyse, what_has_no_pattern_is_a_list_and_beyond_that_random) {
    std::mt19937_64 random(7);
    std::vector<Access> accesses;
    for (size_t i = 0; i < kListMax + 1; ++i)
        accesses.push_back({static_cast<int64_t>(random() >> 2), 4096});
    Program found = analyse(accesses, {});
    ASSERT_EQ(found.nodes.size(), 1u);
    EXPECT_EQ(found.nodes[0].kind, NodeKind::kRandom);
    EXPECT_EQ(found.nodes[0].trips.base, static_cast<int64_t>(accesses.size()));
    EXPECT_EQ(found.provenance.confidence, 0.0);
    accesses.resize(1000);
    found = analyse(accesses, {});
    ASSERT_EQ(found.nodes.size(), 1u);
    EXPECT_EQ(found.nodes[0].list, accesses);
    EXPECT_TRUE(analyse({}, {}).nodes.empty());
}

TEST(Analyse, lists_that_are_too_long_only_together_are_no_program) {
    std::mt19937_64 random(7);
    std::vector<Access> accesses;
    const auto any = [&] {
        for (size_t i = 0; i < kListMax / 2 + 1; ++i)
            accesses.push_back({static_cast<int64_t>(random() >> 2), 4096});
    };
    any();
    for (int64_t i = 0; i < 1000; ++i) accesses.push_back({i * 4096, 4096});
    any();
    const Program found = analyse(accesses, {});
    EXPECT_TRUE(validate(found).ok()) << validate(found).message();
    EXPECT_EQ(found.provenance.confidence, 0.0);
}

TEST(Analyse, epochs_in_one_shuffled_order_are_a_loop_around_a_list) {
    std::mt19937_64 random(7);
    std::vector<Access> epoch;
    for (int64_t i = 0; i < 500; ++i)
        epoch.push_back({i * 110000, 100000 + static_cast<int64_t>(random() % 9999)});
    std::shuffle(epoch.begin(), epoch.end(), random);
    std::vector<Access> accesses = {{1 << 30, 8}, {1 << 29, 99}};  // as a header is read
    for (int turn = 0; turn < 4; ++turn)
        accesses.insert(accesses.end(), epoch.begin(), epoch.end());
    accesses.resize(accesses.size() - 100);  // the run ends within an epoch
    const Program found = analyse(accesses, {});
    EXPECT_EQ(expand(found.nodes), accesses);
    EXPECT_TRUE(validate(found).ok()) << validate(found).message();
    EXPECT_EQ(found.provenance.confidence, 1.0);
    ASSERT_EQ(found.nodes.size(), 3u) << describe(found.nodes);
    EXPECT_EQ(found.nodes[1].trips.base, 3);
    EXPECT_EQ(found.nodes[2].list.size(), epoch.size());
}

TEST(Analyse, times_go_to_leaves_and_turns) {
    const std::vector<Node> nodes = {
        patterns::loop(patterns::along(10), 2), patterns::loop(patterns::along(8), 1),
        patterns::access(patterns::along(0, {1 << 20, 8192}), patterns::along(4096))};
    const std::vector<Access> accesses = expand(nodes);
    std::vector<uint64_t> times;
    uint64_t now = 1000;
    for (size_t i = 0; i < accesses.size(); ++i) {
        times.push_back(now);
        now += 100 + (i % 8 == 7 ? 5000 : 0);
    }
    const Program found = analyse(accesses, times);
    ASSERT_EQ(found.nodes.size(), 3u);
    EXPECT_EQ(found.nodes[2].think, (Timing{100, 0, 70}));
    EXPECT_EQ(found.nodes[0].think, (Timing{5000, 0, 9}));
}

}  // namespace
}  // namespace penstock::access
