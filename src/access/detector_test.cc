// Goal: the online detector tells every class of pattern exactly and in time, keeps quiet where
// there is none, is not shaken by single accesses, and allocates nothing for an access.
#include "access/detector.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <new>
#include <random>

#include "access/names.h"
#include "access/patterns_fixture.h"
#include "access/validate.h"
#include "base/counted_allocations_fixture.h"

namespace penstock::access {
namespace {

using patterns::expand;

// What the detector said before an access, held against it.
enum class Told : uint8_t { kNothing, kRight, kWrong };

std::vector<Told> feed(Detector* detector, const std::vector<Access>& accesses) {
    std::vector<Told> told;
    for (const Access& access : accesses) {
        Access next;
        const bool any = detector->predict({&next, 1}) == 1;
        EXPECT_TRUE(!any || detector->state() == State::kStable);
        told.push_back(!any ? Told::kNothing : next == access ? Told::kRight : Told::kWrong);
        detector->observe(access, 0);
    }
    return told;
}

size_t count(const std::vector<Told>& told, Told what, size_t from = 0) {
    return static_cast<size_t>(std::count(
        told.begin() + static_cast<ptrdiff_t>(std::min(from, told.size())), told.end(), what));
}

TEST(Detector, tells_the_second_half_of_every_golden_pattern) {
    for (const patterns::Pattern& pattern : patterns::golden()) {
        const std::vector<Access> accesses = expand(pattern.nodes);
        if (accesses.size() < 40) continue;
        Detector detector;
        const std::vector<Told> told = feed(&detector, accesses);
        // The switch of the pattern made of two comes in the second half.
        if (pattern.name == "contiguous-and-stride") continue;
        const size_t from = accesses.size() * 7 / 10;
        EXPECT_EQ(count(told, Told::kWrong, from), 0u) << pattern.name;
        EXPECT_EQ(count(told, Told::kRight, from), accesses.size() - from) << pattern.name;
        EXPECT_EQ(detector.statistics().observed, accesses.size());
        EXPECT_EQ(detector.statistics().right, count(told, Told::kRight));
    }
}

TEST(Detector, lu_has_no_wrong_prediction_after_its_fourth_turn) {
    const std::vector<Access> accesses = expand(patterns::lu(125));
    Detector detector;
    const std::vector<Told> told = feed(&detector, accesses);
    const size_t fourth = 3 + 4 + 5 + 6;
    EXPECT_EQ(count(told, Told::kWrong, fourth), 0u);
    // The search for what comes next may be put off by one access.
    EXPECT_GE(count(told, Told::kRight, fourth) + 1, accesses.size() - fourth);
    EXPECT_EQ(detector.algorithm(), Algorithm::kNest);
}

TEST(Detector, says_which_algorithm_holds) {
    const std::vector<std::pair<const char*, Algorithm>> cases = {
        {"contiguous", Algorithm::kContiguous},
        {"fixed-stride", Algorithm::kFixedStride},
        {"negative-stride", Algorithm::kFixedStride},
        {"size-ramp", Algorithm::kFixedStride},
        {"2d-strided", Algorithm::kNest},
        {"lu", Algorithm::kNest},
        {"interleaved-2", Algorithm::kInterleaved},
        {"interleaved-4", Algorithm::kInterleaved},
        {"delta-unit-7", Algorithm::kPeriod},
        {"delta-unit-32", Algorithm::kPeriod},
    };
    for (const auto& [pattern, algorithm] : cases) {
        Detector detector;
        feed(&detector, expand(patterns::named(pattern)));
        EXPECT_EQ(detector.state(), State::kStable) << pattern;
        EXPECT_STREQ(name(detector.algorithm()), name(algorithm)) << pattern;
    }
}

TEST(Detector, one_in_a_hundred_at_random_demotes_nothing) {
    for (const patterns::Pattern& pattern : patterns::golden()) {
        std::vector<Access> accesses = expand(pattern.nodes);
        if (accesses.size() < 200) continue;
        for (uint64_t seed = 1; seed <= 20; ++seed) {
            std::mt19937_64 random(seed);
            Detector detector;
            uint64_t suspensions = 0;
            const size_t calm = accesses.size() / 2;
            for (size_t i = 0; i < accesses.size(); ++i) {
                if (i == calm) suspensions = detector.statistics().suspensions;
                // Half of them come besides an access, half instead of it; now and then two in a
                // row.
                const bool noise = i > calm && random() % 100 == 0;
                if (noise)
                    detector.observe({static_cast<int64_t>(random() >> 3), accesses[i].size}, 0);
                if (!noise || random() % 2 == 0) detector.observe(accesses[i], 0);
                if (i > calm) {
                    ASSERT_EQ(detector.state(), State::kStable)
                        << pattern.name << " at " << i << " seed " << seed;
                }
            }
            if (pattern.name != "contiguous-and-stride") {
                EXPECT_EQ(detector.statistics().suspensions, suspensions)
                    << pattern.name << " seed " << seed;
            }
        }
    }
}

// Accesses after which a pattern must be followed: 8, or two of its periods.
TEST(Detector, a_switch_is_followed_in_time) {
    const std::vector<std::pair<const char*, size_t>> times = {{"contiguous", 8},
                                                               {"fixed-stride", 8},
                                                               {"negative-stride", 8},
                                                               {"size-ramp", 8},
                                                               {"2d-strided", 2 * 10 + 1},
                                                               {"negative-2d", 2 * 8 + 1},
                                                               {"3d-strided", 2 * 42 + 1},
                                                               {"header-and-rows", 2 * 13},
                                                               {"delta-unit-7", 2 * 7 + 1},
                                                               {"delta-unit-32", 2 * 32 + 1},
                                                               {"tiles-100x100", 2 * 100 + 1}};
    for (const patterns::Pattern& before : patterns::golden()) {
        for (const auto& [after, within] : times) {
            if (before.name == after) continue;
            Detector detector;
            feed(&detector, expand(before.nodes));
            std::vector<Access> accesses = expand(patterns::named(after));
            for (Access& access : accesses) access.offset += 123456789000;
            const std::vector<Told> told = feed(&detector, accesses);
            EXPECT_EQ(count(told, Told::kRight, within), accesses.size() - within)
                << after << " after " << before.name << ", wrong "
                << count(told, Told::kWrong, within);
        }
    }
}

TEST(Detector, a_turn_of_eight_is_found_again_after_failures) {
    // What is looked for at every eighth access alone was never found: a turn has eight.
    const std::vector<Access> accesses = expand(
        {patterns::loop(patterns::along(6), 5), patterns::loop(patterns::along(8), 4),
         patterns::access(patterns::along(1LL << 40, {-81728, 56343}), patterns::along(904235)),
         patterns::access(patterns::along(1LL << 41, {72214, -2727}), patterns::along(558699)),
         patterns::loop(patterns::along(6), 1),
         patterns::access(patterns::along(1LL << 42, {-1052711, 652098, -1014746}),
                          patterns::along(464310, {490}))});
    for (uint64_t skipped = 0; skipped < 8; ++skipped) {
        Detector detector;
        // Runs that end as soon as they are believed in.
        for (uint64_t i = 0; i < 20 * 8 + skipped; ++i)
            detector.observe({static_cast<int64_t>(i % 8 * 4096 + i / 8 % 2 * 77777 * i), 4096}, 0);
        const std::vector<Told> told = feed(&detector, accesses);
        EXPECT_GE(count(told, Told::kRight, 100), 100u + 150u) << skipped << " skipped";
    }
}

TEST(Detector, random_is_off) {
    for (const uint64_t blocks : {uint64_t{1} << 40, uint64_t{1} << 20, uint64_t{1000}}) {
        for (uint64_t seed = 1; seed <= 5; ++seed) {
            std::mt19937_64 random(seed);
            Detector detector;
            for (int i = 0; i < 20000; ++i)
                detector.observe({static_cast<int64_t>(random() % blocks * 4096), 4096}, 0);
            EXPECT_LE(detector.statistics().predicted, 20000u / 500)
                << blocks << " blocks, seed " << seed;
            if (blocks > 1000) {
                EXPECT_STREQ(name(detector.algorithm()), "random") << blocks;
                EXPECT_NE(detector.state(), State::kStable);
            }
        }
    }
}

TEST(Detector, wrong_again_and_again_is_confirmed_twice_as_long) {
    // Runs of four: three make a stride, the fifth would be wrong.
    std::mt19937_64 random(3);
    Detector detector;
    for (int run = 0; run < 2000; ++run) {
        const auto begin = static_cast<int64_t>(random() >> 3);
        const auto stride = static_cast<int64_t>(random() >> 33);
        const int64_t length = 4 + static_cast<int64_t>(random() % 3);
        for (int64_t i = 0; i < length; ++i) detector.observe({begin + i * stride, 4096}, 0);
    }
    EXPECT_LE(detector.statistics().suspensions, 6u);
    EXPECT_GE(detector.statistics().suspensions, 1u);
}

TEST(Detector, a_majority_predicts_the_next_access_only) {
    std::mt19937_64 random(5);
    Detector detector;
    Access ahead[4];
    int64_t position = 0;
    bool seen = false;
    for (int i = 0; i < 5000; ++i) {
        // Single accesses elsewhere, too dense for outliers.
        const bool noise = i % 5 == 4;
        if (noise) {
            detector.observe({static_cast<int64_t>(random() >> 3), 512}, 0);
        } else {
            detector.observe({position, 4096}, 0);
            position += 65536;
        }
        if (detector.algorithm() == Algorithm::kMajority) {
            seen = true;
            EXPECT_LE(detector.predict(ahead), 1u);
        }
    }
    EXPECT_TRUE(seen);
    EXPECT_GE(detector.statistics().right * 10, detector.statistics().predicted * 7);
}

TEST(Detector, a_sequence_of_uneven_sizes_is_contiguous) {
    std::mt19937_64 random(11);
    Detector detector;
    int64_t offset = 0;
    for (int i = 0; i < 100; ++i) {
        const Access access{offset, 100 + static_cast<int64_t>(random() % 4000)};
        detector.observe(access, 0);
        offset = access.offset + access.size;
    }
    Access next;
    ASSERT_EQ(detector.predict({&next, 1}), 1u);
    EXPECT_EQ(next.offset, offset);
    EXPECT_EQ(detector.algorithm(), Algorithm::kContiguous);
}

TEST(Detector, what_lies_further_ahead_is_the_same_from_anywhere) {
    for (const patterns::Pattern& pattern : patterns::golden()) {
        const std::vector<Access> accesses = expand(pattern.nodes);
        Detector detector;
        std::vector<Access> whole(300), part(7);
        for (size_t i = 0; i < accesses.size() && i < 400; ++i) {
            detector.observe(accesses[i], 0);
            const size_t told = detector.predict(whole);
            for (const size_t skip : {size_t{1}, size_t{5}, size_t{31}, size_t{200}}) {
                const size_t further = detector.predict_from(skip, part);
                if (detector.algorithm() == Algorithm::kMajority) continue;
                ASSERT_EQ(further, told > skip ? std::min(told - skip, part.size()) : 0)
                    << pattern.name << " " << i << " " << skip;
                for (size_t k = 0; k < further; ++k) ASSERT_EQ(part[k], whole[skip + k]);
            }
        }
    }
}

TEST(Detector, offsets_beyond_what_a_file_has_are_not_told) {
    Detector down;
    for (int64_t i = 20; i > 3; --i) down.observe({i * 1000, 10}, 0);
    std::vector<Access> ahead(100);
    EXPECT_EQ(down.predict(ahead), 4u);
    Detector up;
    constexpr int64_t kEnd = INT64_MAX;
    for (int64_t i = 20; i > 3; --i) up.observe({kEnd - i * 1000, 10}, 0);
    EXPECT_EQ(up.predict(ahead), 3u);
}

TEST(Detector, allocates_nothing_for_an_access) {
    std::vector<Access> accesses;
    for (const patterns::Pattern& pattern : patterns::golden()) {
        const std::vector<Access> more = expand(pattern.nodes);
        accesses.insert(accesses.end(), more.begin(), more.end());
    }
    std::mt19937_64 random(1);
    for (int i = 0; i < 5000; ++i)
        accesses.push_back({static_cast<int64_t>(random() % 4000 * 4096), 4096});
    Detector detector;
    std::array<Access, 16> ahead;
    const uint64_t before = base::allocations;
    for (const Access& access : accesses) {
        detector.observe(access, 1);
        static_cast<void>(detector.predict(ahead));
    }
    EXPECT_EQ(base::allocations, before);
}

TEST(Detector, tells_the_time_between_accesses) {
    Detector detector;
    EXPECT_EQ(detector.timing().count, 0u);
    for (const uint64_t time : {1000, 1100, 1200, 900}) detector.observe({0, 1}, time);
    EXPECT_EQ(detector.timing().count, 3u);
    EXPECT_NEAR(detector.timing().mean_ns, 200.0 / 3, 1e-9);
}

// Mean gap of 200 accesses with gaps around 1000 ns, but for jumps before some of them.
double mean_gap(const std::vector<std::pair<int, int64_t>>& jumps) {
    Detector detector;
    uint64_t now = uint64_t{1} << 62;
    for (int i = 0; i < 200; ++i) {
        now += 900 + static_cast<uint64_t>(i % 5) * 50;
        for (const auto& [at, ns] : jumps) now += at == i ? static_cast<uint64_t>(ns) : 0;
        detector.observe({i * 4096, 4096}, now);
    }
    EXPECT_GE(detector.timing().mean_ns, 0);
    EXPECT_TRUE(std::isfinite(detector.timing().deviation_ns));
    return detector.timing().mean_ns;
}

TEST(Detector, jumps_of_the_clock_are_no_gaps) {
    constexpr int64_t kSecond = 1'000'000'000, kHour = 3600 * kSecond;
    const double calm = mean_gap({});
    EXPECT_NEAR(calm, 1000, 10);
    for (const int64_t jump : {kSecond, 60 * kSecond, kHour - 1, kHour, 20 * kHour, INT64_MAX}) {
        for (const int at : {1, 2, 7, 100, 198, 199}) {
            EXPECT_NEAR(mean_gap({{at, jump}}), calm, 60) << jump << " ns ahead at " << at;
            EXPECT_NEAR(mean_gap({{at, -jump}}), calm, 60) << jump << " ns back at " << at;
            // Put right soon, as by a time server, or gone wrong again.
            EXPECT_NEAR(mean_gap({{at, jump}, {at + 1, -jump}}), calm, 60) << jump << " at " << at;
            EXPECT_NEAR(mean_gap({{at, -jump}, {at + 20, jump}}), calm, 60) << jump << " at " << at;
        }
    }
    // All the way round, again and again.
    EXPECT_NEAR(mean_gap({{1, 9 * kHour}, {2, -5 * kHour}, {3, 7 * kHour}, {90, 2 * kHour}}), calm,
                60);
}

TEST(Detector, gaps_that_are_long_now_and_then_count) {
    for (const int every : {2, 10, 100}) {
        Detector detector;
        uint64_t now = 0;
        for (int i = 0; i < 20'000; ++i) {
            now += i % every == 0 ? 50'000'000 : 1000;
            detector.observe({i * 4096, 4096}, now);
        }
        EXPECT_NEAR(detector.timing().mean_ns * every, 50'000'000, 10'000'000) << every;
    }
    // Nor is a clock that stood still at first believed for ever.
    Detector detector;
    for (uint64_t i = 0; i < 5000; ++i)
        detector.observe({0, 1}, i < 100 ? 0 : (i - 100) * 1'000'000);
    EXPECT_NEAR(detector.timing().mean_ns, 980'000, 30'000);
}

TEST(Detector, its_program_is_what_it_saw_and_how_that_goes_on) {
    const std::vector<Access> accesses = expand(patterns::named("2d-strided"));
    Detector detector;
    for (size_t i = 0; i < 145; ++i) detector.observe(accesses[i], 0);
    Program program = detector.program();
    ASSERT_EQ(program.nodes.size(), 3u);
    EXPECT_TRUE(validate(program).ok()) << validate(program).message();
    EXPECT_GT(program.nodes[0].trips.base, 1 << 20);
    Cursor cursor(program);
    for (const Access& access : accesses) ASSERT_EQ(cursor.next(), access);
    EXPECT_EQ(program.provenance.origin, Origin::kOnline);
    EXPECT_EQ(program.provenance.support, 145u);
}

TEST(Detector, its_program_is_valid_at_any_time) {
    for (const patterns::Pattern& pattern : patterns::golden()) {
        const std::vector<Access> accesses = expand(pattern.nodes);
        Detector detector;
        for (size_t i = 0; i < accesses.size() && i < 300; ++i) {
            detector.observe(accesses[i], 0);
            const Program program = detector.program();
            ASSERT_TRUE(validate(program).ok())
                << pattern.name << " " << i << " " << validate(program).message();
        }
    }
}

}  // namespace
}  // namespace penstock::access
