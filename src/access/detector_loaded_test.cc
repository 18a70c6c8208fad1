// Goal: a loaded program is adjusted as the table of seed 004 says, keeps what it knows when single
// accesses are beside it, and is given up when it is another stream's.
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "access/detector.h"
#include "access/patterns_fixture.h"

namespace penstock::access {
namespace {

using patterns::expand;

// The table of seed 004, row by row.
class LoadedProgram : public ::testing::Test {
protected:
    LoadedProgram() {
        Program program;
        program.nodes = patterns::named("fixed-stride");  // 4096 + i * 8192, 2048 bytes
        detector.load(program, 0);
    }
    std::optional<Access> next() {
        Access access;
        if (detector.predict({&access, 1}) == 0) return std::nullopt;
        return access;
    }
    Detector detector;
};

TEST_F(LoadedProgram, learns_until_one_access_confirms_it) {
    EXPECT_EQ(detector.state(), State::kLearning);
    EXPECT_EQ(detector.algorithm(), Algorithm::kLoaded);
    EXPECT_EQ(next(), std::nullopt);
    detector.observe({4096, 2048}, 0);
    EXPECT_EQ(detector.state(), State::kStable);
    EXPECT_EQ(next(), (Access{4096 + 8192, 2048}));
}

TEST_F(LoadedProgram, stride_and_size_as_told_take_the_position_from_the_access) {
    detector.observe({1000000, 2048}, 0);  // a first position of its own
    EXPECT_EQ(detector.state(), State::kLearning);
    detector.observe({1000000 + 8192, 2048}, 0);
    EXPECT_EQ(detector.state(), State::kStable);
    EXPECT_EQ(next(), (Access{1000000 + 2 * 8192, 2048}));
}

TEST_F(LoadedProgram, another_size_is_taken_over) {
    detector.observe({4096, 2048}, 0);
    detector.observe({4096 + 8192, 1024}, 0);
    EXPECT_EQ(detector.state(), State::kLearning);
    EXPECT_EQ(next(), std::nullopt);
    detector.observe({4096 + 2 * 8192, 1024}, 0);
    EXPECT_EQ(detector.state(), State::kStable);
    EXPECT_EQ(next(), (Access{4096 + 3 * 8192, 1024}));
}

TEST_F(LoadedProgram, another_stride_is_taken_over) {
    detector.observe({4096, 2048}, 0);
    detector.observe({4096 + 5000, 2048}, 0);
    EXPECT_EQ(detector.state(), State::kLearning);
    EXPECT_EQ(next(), std::nullopt);
    detector.observe({4096 + 10000, 2048}, 0);
    EXPECT_EQ(detector.state(), State::kStable);
    EXPECT_EQ(next(), (Access{4096 + 15000, 2048}));
}

TEST_F(LoadedProgram, both_different_predict_nothing) {
    detector.observe({4096, 2048}, 0);
    detector.observe({77, 99}, 0);
    EXPECT_EQ(detector.state(), State::kSuspended);
    EXPECT_EQ(next(), std::nullopt);
    detector.observe({4096 + 8192, 2048}, 0);
    EXPECT_EQ(detector.state(), State::kStable);
}

TEST_F(LoadedProgram, half_and_twice_the_stride_are_taken_over) {
    for (const int64_t stride : {4096, 2 * 8192, 3 * 8192}) {
        Program program;
        program.nodes = patterns::named("fixed-stride");
        detector.load(program, 0);
        for (int64_t i = 0; i < 4; ++i) detector.observe({4096 + i * 8192, 2048}, 0);
        int64_t last = 4096 + 3 * 8192;
        for (int i = 0; i < 2; ++i) detector.observe({last += stride, 2048}, 0);
        EXPECT_EQ(detector.state(), State::kStable) << stride;
        EXPECT_EQ(next(), (Access{last + stride, 2048})) << stride;
    }
}

TEST_F(LoadedProgram, another_place_and_another_size_are_taken_from_the_first_access) {
    detector.observe({1000000, 512}, 0);
    EXPECT_EQ(detector.state(), State::kLearning);
    detector.observe({1000000 + 8192, 512}, 0);
    EXPECT_EQ(detector.state(), State::kStable);
    EXPECT_EQ(next(), (Access{1000000 + 2 * 8192, 512}));
}

TEST_F(LoadedProgram, an_outlier_of_the_same_size_does_not_change_the_stride) {
    for (int64_t i = 0; i < 5; ++i) detector.observe({4096 + i * 8192, 2048}, 0);
    detector.observe({1 << 30, 2048}, 0);  // beside the program
    detector.observe({4096 + 5 * 8192, 2048}, 0);
    EXPECT_EQ(detector.state(), State::kStable);
    EXPECT_EQ(next(), (Access{4096 + 6 * 8192, 2048}));
    detector.observe({1 << 29, 777}, 0);  // instead of one of it
    detector.observe({4096 + 7 * 8192, 2048}, 0);
    EXPECT_EQ(detector.state(), State::kStable);
    EXPECT_EQ(next(), (Access{4096 + 8 * 8192, 2048}));
    detector.observe({4096 + 9 * 8192, 2048}, 0);  // one is left out
    detector.observe({4096 + 10 * 8192, 2048}, 0);
    EXPECT_EQ(detector.state(), State::kStable);
    EXPECT_EQ(next(), (Access{4096 + 11 * 8192, 2048}));
    EXPECT_EQ(detector.statistics().outliers, 3u);
}

TEST(Detector, one_in_a_hundred_at_random_does_not_shake_a_loaded_program) {
    for (const patterns::Pattern& pattern : patterns::golden()) {
        const std::vector<Access> accesses = expand(pattern.nodes);
        if (accesses.size() < 200) continue;
        for (uint64_t seed = 1; seed <= 5; ++seed) {
            std::mt19937_64 random(seed);
            Program program;
            program.nodes = pattern.nodes;
            Detector detector;
            detector.load(program, 0);
            bool shaken = false;  // by the access before
            for (size_t i = 0; i + 10 < accesses.size(); ++i) {
                const bool noise = i > 20 && i % 100 == 50;
                const Access other{static_cast<int64_t>(random() >> 3), accesses[i].size};
                if (noise) detector.observe(other, 0);
                if (!noise || random() % 2 == 0) detector.observe(accesses[i], 0);
                ASSERT_TRUE(noise || shaken || detector.state() == State::kStable)
                    << pattern.name << " at " << i << " seed " << seed;
                shaken = noise;
                ASSERT_EQ(detector.algorithm(), Algorithm::kLoaded);
            }
            EXPECT_GT(detector.statistics().right * 100, (accesses.size() - 10) * 95);
        }
    }
}

TEST(Detector, a_loaded_program_may_begin_with_many_empty_turns) {
    // Row i has i - 5000 blocks: 5001 turns without any, and two loops that stay empty for ever.
    Program program;
    program.nodes = {patterns::loop(patterns::along(6000), 4),
                     patterns::loop(patterns::along(-5000, {1}), 1),
                     patterns::access(patterns::along(0, {1 << 20, 4096}), patterns::along(4096)),
                     patterns::loop(patterns::along(-7000, {1}), 1),
                     patterns::access(patterns::along(7), patterns::along(4096))};
    const std::vector<Access> accesses = expand(program.nodes);
    Detector detector;
    detector.load(program, 0);
    size_t right = 0;
    for (size_t i = 0; i < 5000; ++i) {
        Access next;
        right += detector.predict({&next, 1}) == 1 && next == accesses[i] ? 1 : 0;
        detector.observe(accesses[i], 0);
    }
    EXPECT_EQ(right, 4999u);
    EXPECT_EQ(detector.algorithm(), Algorithm::kLoaded);
}

TEST_F(LoadedProgram, is_given_up_for_what_really_comes) {
    for (int64_t i = 0; i < 20; ++i) detector.observe({1 << 20 | i * 100, 100}, 0);
    for (int64_t i = 0; i < 20; ++i) detector.observe({(1 << 30) - i * 777, 100 + i}, 0);
    EXPECT_EQ(detector.algorithm(), Algorithm::kFixedStride);
    EXPECT_EQ(detector.state(), State::kStable);
}

}  // namespace
}  // namespace penstock::access
