// Goal: at least 0.95 of the bytes of sequences are predicted, whatever sizes their accesses have
// and however many of them take turns; and of random accesses hardly any.
#include "access/sequences.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "access/repeats.h"

namespace penstock::access {
namespace {

using Stream = std::vector<Access>;

double share(SequenceTracker& tracker, const Stream& accesses) {
    int64_t told = 0, bytes = 0;
    for (const Access& access : accesses) {
        told += tracker.observe(access);
        bytes += access.size;
    }
    return static_cast<double>(told) / static_cast<double>(bytes);
}

double share(const Stream& accesses, size_t threads = 1) {
    SequenceTracker tracker(threads);
    return share(tracker, accesses);
}

// Sequences from multiples of 1 GiB on, in random turns. The sizes are equally likely, or, if
// `skewed`, each power of two is.
Stream sequences(size_t count, size_t accesses, bool skewed, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<int64_t> at(count);
    for (size_t i = 0; i < count; ++i) at[i] = static_cast<int64_t>(i) << 30;
    Stream out;
    for (size_t i = 0; i < accesses; ++i) {
        int64_t& begin = at[random() % count];
        const int64_t size = skewed ? int64_t{1} << random() % 18
                                    : static_cast<int64_t>(1 + random() % 65536);
        out.push_back({begin, size});
        begin += size;
    }
    return out;
}

TEST(Sequences, sizes_do_not_matter) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        EXPECT_GE(share(sequences(1, 300, false, seed)), 0.95) << seed;
        EXPECT_GE(share(sequences(1, 300, true, seed)), 0.95) << seed;
    }
}

TEST(Sequences, two_four_and_eight_in_random_turns) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        for (const size_t count : {2, 4, 8}) {
            SequenceTracker tracker;
            EXPECT_GE(share(tracker, sequences(count, 150 * count, false, seed)), 0.95)
                << count << " sequences, seed " << seed;
            EXPECT_TRUE(tracker.interleaved());
            EXPECT_EQ(tracker.concurrent(), count);
            EXPECT_GE(share(sequences(count, 300 * count, true, seed)), 0.95)
                << count << " skewed sequences, seed " << seed;
        }
    }
}

TEST(Sequences, two_readers_of_the_same_bytes) {
    std::mt19937_64 random(11);
    const Stream one = sequences(1, 500, false, 11);
    Stream in_turn, any_turn;
    for (size_t first = 0, second = 0; second < one.size();) {
        const bool ahead = first < one.size() && (first == second || random() % 2 == 0);
        any_turn.push_back(one[ahead ? first++ : second++]);
    }
    for (const Access& access : one) in_turn.insert(in_turn.end(), 2, access);
    EXPECT_GE(share(in_turn), 0.95);
    EXPECT_GE(share(any_turn), 0.95);
}

TEST(Sequences, a_jump_costs_only_its_own_access) {
    std::mt19937_64 random(3);
    Stream accesses;
    int64_t at = 0;
    for (size_t i = 0; i < 5000; ++i) {
        if (i % 45 == 44) at = static_cast<int64_t>(random() % (uint64_t{1} << 40));
        const auto size = static_cast<int64_t>(1000 + random() % 9000);
        accesses.push_back({at, size});
        at += size;
    }
    SequenceTracker tracker;
    EXPECT_GE(share(tracker, accesses), 0.96);
    EXPECT_FALSE(tracker.interleaved());
}

// Each of the threads takes the next piece, and then works on it for a while before it reads.
TEST(Sequences, threads_that_share_a_counter) {
    for (const size_t threads : {2, 4, 16}) {
        std::mt19937_64 random(threads);
        Stream in_order = sequences(1, 2000, false, threads), recorded;
        Stream held;
        for (const Access& access : in_order) {
            held.push_back(access);
            if (held.size() < threads) continue;
            const size_t i = random() % held.size();
            recorded.push_back(held[i]);
            held.erase(held.begin() + static_cast<ptrdiff_t>(i));
        }
        EXPECT_GE(share(recorded, threads), 0.95) << threads << " threads";
    }
}

TEST(Sequences, random_accesses_are_not_predicted) {
    for (const uint64_t blocks : {16, 64, 1000, 50000}) {
        std::mt19937_64 random(blocks);
        Stream accesses, skewed;
        for (size_t i = 0; i < 20000; ++i) {
            accesses.push_back({static_cast<int64_t>(random() % blocks) * 4096, 4096});
            const double unit = std::uniform_real_distribution<double>(0, 1)(random);
            const double zipf = std::pow(static_cast<double>(blocks), unit) - 1;
            skewed.push_back({static_cast<int64_t>(zipf) * 4096, 4096});
        }
        EXPECT_LE(share(accesses), 0.02) << blocks;
        EXPECT_LE(share(skewed), 0.02) << blocks;
        EXPECT_LE(share(accesses, 8), 0.02) << blocks;
        EXPECT_LE(share(skewed, 8), 0.02) << blocks;
    }
}

TEST(Sequences, a_stride_with_gaps_is_none) {
    Stream accesses;
    for (int64_t i = 0; i < 1000; ++i) accesses.push_back({i * 8192, 2048});
    EXPECT_EQ(share(accesses), 0.0);
    EXPECT_EQ(share(accesses, 4), 0.0);
}

TEST(Sequences, accesses_at_the_ends_of_the_number_range) {
    SequenceTracker tracker(1000);
    EXPECT_EQ(tracker.observe({INT64_MAX - 5, 5}), 0);
    EXPECT_EQ(tracker.observe({0, INT64_MAX}), 0);
    EXPECT_EQ(tracker.observe({0, 0}), 0);
    EXPECT_EQ(tracker.observe({INT64_MAX, 0}), 0);
}

size_t told(RepeatTracker* tracker, size_t count) {
    size_t sum = 0;
    for (size_t i = 0; i < count; ++i) sum += tracker->observe_next() ? 1 : 0;
    return sum;
}

TEST(Repeats, the_second_epoch_is_told_and_its_length) {
    std::mt19937_64 random(5);
    Stream epoch, accesses;
    for (int64_t i = 0; i < 1000; ++i) epoch.push_back({i * 4096, 4096});
    std::shuffle(epoch.begin(), epoch.end(), random);
    for (int turn = 0; turn < 3; ++turn)
        accesses.insert(accesses.end(), epoch.begin(), epoch.end());
    RepeatTracker tracker(accesses);
    EXPECT_EQ(told(&tracker, 1000), 0u);
    EXPECT_GE(told(&tracker, 2000), 1990u);
    EXPECT_EQ(tracker.period(), 1000u);
}

TEST(Repeats, random_accesses_repeat_no_order) {
    for (const uint64_t blocks : {16, 64, 1000}) {
        std::mt19937_64 random(blocks);
        Stream accesses;
        for (size_t i = 0; i < 20000; ++i)
            accesses.push_back({static_cast<int64_t>(random() % blocks) * 4096, 4096});
        RepeatTracker tracker(accesses);
        EXPECT_LE(told(&tracker, accesses.size()), 10u) << blocks;
    }
}

}  // namespace
}  // namespace penstock::access
