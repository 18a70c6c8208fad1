// Goal: accesses, times and programs at the edges of 64 bits overflow nothing. Run under ASan and
// UBSan, where that is an error; here: no crash, and nothing told that cannot be an access.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <limits>
#include <random>

#include "access/canonical.h"
#include "access/cursor.h"
#include "access/detector.h"
#include "access/patterns_fixture.h"
#include "access/validate.h"
#include "testing/effort.h"

namespace penstock::access {
namespace {

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

uint64_t seeds() { return testing::nightly() ? 20'000 : 300; }

class Hostile {
public:
    explicit Hostile(uint64_t seed) : random_(seed) {}

    uint64_t below(uint64_t limit) { return random_() % limit; }

    // At an edge or next to it, anything, or something small.
    int64_t number() {
        constexpr std::array<int64_t, 8> kEdges = {
            kLeast, kMost, 0, kLeast / 2, kMost / 2, 1LL << 40, -(1LL << 40), 1LL << 62};
        const auto near = static_cast<uint64_t>(kEdges[below(kEdges.size())]) + below(5) - 2;
        switch (below(4)) {
            case 0:
                return static_cast<int64_t>(random_());
            case 1:
                return static_cast<int64_t>(below(9)) - 4;
            default:
                return static_cast<int64_t>(near);
        }
    }

    // Runs and nests of rows whose strides and sizes wrap around.
    std::vector<Access> accesses(size_t count) {
        std::vector<Access> all;
        while (all.size() < count) {
            const auto add = [](int64_t a, int64_t b, uint64_t times) {
                return static_cast<int64_t>(static_cast<uint64_t>(a) +
                                            static_cast<uint64_t>(b) * times);
            };
            const int64_t offset = number(), size = number();
            const std::array<int64_t, 2> steps = {number(), number()};
            const int64_t growth = below(2) == 0 ? 0 : number();
            const uint64_t rows = 1 + below(5), length = 1 + below(6);
            const uint64_t odd = below(8) == 0 ? rows * length / 2 : rows * length;
            for (uint64_t i = 0; i < rows * length; ++i) {
                const int64_t at = add(add(offset, steps[0], i / length), steps[1], i % length);
                all.push_back({i == odd ? number() : at, add(size, growth, i / length)});
            }
        }
        return all;
    }

private:
    std::mt19937_64 random_;
};

void expect_possible(const Detector& detector, uint64_t seed) {
    std::array<Access, 16> ahead;
    for (const size_t skip : {size_t{0}, size_t{3}, size_t{1000}}) {
        const size_t count = detector.predict_from(skip, ahead);
        for (size_t i = 0; i < count; ++i) {
            ASSERT_GE(ahead[i].offset, 0) << "seed " << seed;
            ASSERT_GE(ahead[i].size, 0) << "seed " << seed;
            ASSERT_LE(ahead[i].offset, kMost - ahead[i].size) << "seed " << seed;
        }
    }
}

TEST(Hostile, accesses_and_times_at_the_edges) {
    for (uint64_t seed = 1; seed <= seeds(); ++seed) {
        Hostile hostile(seed);
        const std::vector<Access> accesses = hostile.accesses(150);
        std::vector<uint64_t> times;
        Detector detector;
        for (const Access& access : accesses) {
            times.push_back(static_cast<uint64_t>(hostile.number()));
            detector.observe(access, times.back());
            ASSERT_NO_FATAL_FAILURE(expect_possible(detector, seed));
            if (hostile.below(20) == 0) static_cast<void>(detector.program());
        }
        const Timing timing = detector.timing();
        EXPECT_TRUE(timing.mean_ns >= 0 && timing.deviation_ns >= 0) << "seed " << seed;
        const Program found = analyse(accesses, times);
        EXPECT_EQ(found.provenance.support, accesses.size());
        static_cast<void>(canonical(found));
    }
}

TEST(Hostile, strides_that_leave_64_bits_are_followed_to_there) {
    for (uint64_t seed = 1; seed <= seeds(); ++seed) {
        Hostile hostile(seed);
        const auto stride = static_cast<int64_t>(1 + hostile.below(uint64_t{1} << 59));
        const auto size = static_cast<int64_t>(hostile.below(static_cast<uint64_t>(stride)));
        const bool down = hostile.below(2) == 0;
        const int64_t last = (kMost - size) / stride;
        Detector detector;
        for (int64_t i = std::max<int64_t>(0, last - 12); i <= last - 2; ++i)
            detector.observe({(down ? last - i : i) * stride, size}, 0);
        if (detector.state() != State::kStable) continue;
        std::array<Access, 16> ahead;
        ASSERT_EQ(detector.predict(ahead), 2u) << "seed " << seed;
        EXPECT_EQ(ahead[1].offset, down ? 0 : last * stride) << "seed " << seed;
    }
}

TEST(Hostile, loaded_programs_meet_accesses_at_the_edges) {
    for (uint64_t seed = 1; seed <= seeds(); ++seed) {
        Hostile hostile(seed);
        Program program;
        program.nodes = patterns::Generator(seed).program();
        // Moved as far as a file goes, where that is still a program.
        for (Node& node : program.nodes) {
            if (node.kind != NodeKind::kLoop && hostile.below(2) == 0)
                node.offset.base = hostile.number();
        }
        if (!validate(program).ok()) program.nodes = patterns::Generator(seed).program();
        const std::vector<Access> told = patterns::expand(program.nodes);
        Detector detector;
        detector.load(program, hostile.below(3) == 0 ? UINT64_MAX : 0);
        const std::vector<Access> other = hostile.accesses(60);
        for (size_t i = 0; i < 60; ++i) {
            const bool as_told = hostile.below(3) > 0;
            Access access = as_told ? told[i % told.size()] : other[i];
            if (hostile.below(8) == 0) access.size = hostile.number();
            detector.observe(access, 0);
            ASSERT_NO_FATAL_FAILURE(expect_possible(detector, seed));
        }
        static_cast<void>(detector.program());
        const Cursor cursor(program);
        for (int i = 0; i < 20; ++i)
            static_cast<void>(cursor.contains(static_cast<uint64_t>(hostile.number())));
    }
}

TEST(Hostile, fits_of_bases_at_the_edges) {
    size_t fitted = 0;
    for (uint64_t seed = 1; seed <= 10 * seeds(); ++seed) {
        Hostile hostile(seed);
        std::vector<Program> programs(2 + hostile.below(3));
        std::vector<uint64_t> ranks;
        const int64_t base = hostile.number(), step = hostile.number();
        const bool line = hostile.below(2) == 0;
        const uint64_t first = hostile.below(4) == 0 ? static_cast<uint64_t>(hostile.number())
                                                     : hostile.below(40);
        for (size_t i = 0; i < programs.size(); ++i) {
            ranks.push_back(first + hostile.below(4));  // in any order, some twice
            const uint64_t along = static_cast<uint64_t>(base) +
                                   static_cast<uint64_t>(step) * ranks[i];
            programs[i].nodes = {patterns::access(
                patterns::along(line ? static_cast<int64_t>(along) : hostile.number()),
                patterns::along(hostile.below(2) == 0 ? 1 : hostile.number()))};
        }
        Program fit;
        fitted += fit_ranks(programs, ranks, &fit) ? 1 : 0;
    }
    EXPECT_GT(fitted, 0u);
}

}  // namespace
}  // namespace penstock::access
