// Goal: a stream's targets are in the file, disjoint, within every budget and ahead by the time the
// storage needs; harm is bounded whatever the predictor says; every byte taken is given back.
#include "readahead/readahead.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <map>
#include <new>

#include "base/counted_allocations_fixture.h"
#include "base/prng.h"
#include "readahead/recordings_fixture.h"

namespace penstock::readahead {
namespace {

using access::Access;

std::vector<Access> row(int64_t count, int64_t stride, int64_t size, int64_t first = 0) {
    std::vector<Access> all;
    for (int64_t i = 0; i < count; ++i) all.push_back({first + i * stride, size});
    return all;
}

// A stream with a storage of 1 ms and 1 GB/s, and a cache of 64 MiB.
struct Bench {
    explicit Bench(std::vector<Access> script, uint64_t size, size_t learning = 0,
                   Options with = {})
        : file_size(size),
          options(with),
          predictor(std::move(script), learning),
          readahead(options, 1, size, {model, budget, flights}, predictor) {}

    // One access, `think_ns` after the last was served.
    std::vector<Target> access(const Access& one, uint64_t think_ns = 100'000) {
        now += think_ns;
        readahead.demand(one, now);
        std::array<Target, 64> out;
        const size_t count = readahead.next(now, out);
        readahead.served(now);
        return {out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count)};
    }
    void arrive(const Target& target, Outcome outcome = Outcome::kArrived) {
        while (!flights.find(target.flight)->under_way) flights.start();
        flights.finish(target.flight);
        readahead.completed(target.flight, outcome);
    }

    uint64_t file_size;
    Options options;
    FetchModel model{1'000'000, 1e9};
    Budget budget{64 << 20};
    Flights flights{256};
    ScriptedPredictor predictor;
    uint64_t now = 0;
    Readahead readahead;
};

TEST(Readahead, DistanceIsTheTimeOfAFetchInAccesses) {
    for (const uint64_t think_ns : {1'000'000'000, 1'000'000, 100'000, 10'000}) {
        Bench bench(row(1000, 1 << 16, 1 << 16), 1000 << 16, 1000);
        for (int64_t i = 0; i < 100; ++i) bench.access({i << 16, 1 << 16}, think_ns);
        const uint64_t exact = (1'250'000 + think_ns - 1) / think_ns;
        EXPECT_EQ(bench.readahead.distance(), exact) << think_ns;
    }
}

TEST(Readahead, AJumpOfTheClockIsForgottenSoon) {
    constexpr uint64_t kDay = 86'400'000'000'000;
    for (const int64_t at : {1, 50}) {
        Bench bench(row(1000, 1 << 16, 1 << 16), 1000 << 16, 1000);
        for (int64_t i = 0; i < 200; ++i) bench.access({i << 16, 1 << 16}, i == at ? kDay : 10'000);
        EXPECT_GE(bench.readahead.distance(), 100U) << at;  // 125 without
        bench.now = 1000;                                   // and back
        for (int64_t i = 200; i < 260; ++i) bench.access({i << 16, 1 << 16}, 10'000);
        EXPECT_GE(bench.readahead.distance(), 100U) << at;
        EXPECT_LE(bench.readahead.distance(), 160U) << at;
    }
}

TEST(Readahead, BurstsNeedMoreThanTheMeanSays) {
    Bench even(row(1000, 4096, 4096), 1000 * 4096, 1000);
    Bench bursts(row(1000, 4096, 4096), 1000 * 4096, 1000);
    for (int64_t i = 0; i < 200; ++i) {
        even.access({i * 4096, 4096}, 1'000'000);
        bursts.access({i * 4096, 4096}, i % 4 == 0 ? 3'970'000 : 10'000);
    }
    EXPECT_EQ(even.readahead.distance(), 2U);
    EXPECT_GE(bursts.readahead.distance(), 3U);
}

TEST(Readahead, FetchesAgainWhenLessThanHalfIsLeft) {
    Bench bench(row(4000, 1 << 18, 1 << 14), uint64_t{4000} << 18);
    size_t fetches = 0;
    for (int64_t i = 0; i < 2000; ++i) {
        const size_t before = bench.readahead.ahead();
        const auto targets = bench.access({i << 18, 1 << 14});
        for (const Target& target : targets) bench.arrive(target);
        if (i < 100) continue;  // the credit grows
        if (!targets.empty()) {
            ++fetches;
            EXPECT_LE(before, bench.readahead.distance());
            EXPECT_EQ(bench.readahead.ahead(), 2 * bench.readahead.distance());
        }
        EXPECT_GE(bench.readahead.ahead(), bench.readahead.distance());
    }
    EXPECT_NEAR(static_cast<double>(fetches), 1900.0 / 14, 14);
    EXPECT_EQ(bench.readahead.counts().wasted_size, 0U);
}

TEST(Readahead, NeighboursAreOneFetchAndGapsAreBridgedWhileTheyAreSmall) {
    const auto first_batch = [](int64_t stride, int64_t size) {
        Bench bench(row(1000, stride, size), static_cast<uint64_t>(stride) * 1000);
        for (int i = 0; i < 3; ++i) bench.access({0, size});  // only one of them is in the script
        std::vector<Target> targets;
        for (int64_t i = 1; i < 40; ++i) {
            targets = bench.access({i * stride, size});
            for (const Target& target : targets) bench.arrive(target);
        }
        for (int64_t i = 40; targets.empty() || i < 60; ++i) {
            targets = bench.access({i * stride, size});
            for (const Target& target : targets) bench.arrive(target);
        }
        return targets.size();
    };
    EXPECT_EQ(first_batch(16384, 16384), 1U);
    EXPECT_EQ(first_batch(68 << 10, 64 << 10), 1U) << "1/17 of it are gaps";
    EXPECT_GE(first_batch(1 << 20, 16384), 12U);
}

TEST(Readahead, SmallAccessesShareAGranuleAndItIsFetchedOnce) {
    Bench bench(row(10'000, 100, 100), 1'000'000);
    std::map<uint64_t, int> fetched;
    for (int64_t i = 0; i < 10'000; ++i) {
        for (const Target& target : bench.access({i * 100, 100}, 20'000)) {
            EXPECT_EQ(target.extent.offset % 4096, 0U);
            for (uint64_t at = target.extent.offset; at < target.extent.end(); at += 4096) {
                EXPECT_EQ(++fetched[at], 1) << at;
            }
            bench.arrive(target);
        }
    }
    EXPECT_GE(fetched.size(), 1'000'000U / 4096 - 2);
    EXPECT_EQ(bench.readahead.counts().wasted_size, 0U);
    EXPECT_EQ(bench.budget.reserved(), bench.readahead.unused_size());
}

TEST(Readahead, NothingIsFetchedBehindTheEndOrBeforeTheBeginning) {
    for (const uint64_t size : {1U, 4095U, 4097U, 100'000U}) {
        std::vector<Access> script = row(100, 7000, 9000);
        script.insert(script.begin() + 2,
                      {{-5000, 4096}, {INT64_MAX - 10, 4096}, {0, INT64_MAX}, {5, 0}, {5, -1}});
        Bench bench(script, size);
        for (size_t i = 0; i < script.size(); ++i) {
            for (const Target& target : bench.access(script[i], 1000)) {
                EXPECT_LE(target.extent.end(), size);
                EXPECT_FALSE(target.extent.empty());
                bench.arrive(target);
            }
        }
    }
}

TEST(Readahead, AnOutlierLeavesWhatWasFetchedInPlace) {
    Bench bench(row(1000, 1 << 16, 1 << 14), 1000 << 16);
    for (int64_t i = 0; i < 200; ++i) {
        for (const Target& target : bench.access({i << 16, 1 << 14})) bench.arrive(target);
    }
    const size_t ahead = bench.readahead.ahead();
    bench.readahead.demand({12345, 10}, bench.now);
    EXPECT_EQ(bench.readahead.ahead(), ahead);
    const uint64_t fetched = bench.readahead.counts().fetched_size;
    bench.access({200 << 16, 1 << 14});
    EXPECT_LE(bench.readahead.counts().fetched_size - fetched, uint64_t{28} << 14);
    EXPECT_EQ(bench.readahead.counts().wasted_size, 0U);
}

TEST(Readahead, AnAccessThatThePredictorLetsPassMovesTheFrontierByOne) {
    const auto script = row(1000, 1 << 16, 1 << 14);
    Bench bench(script, 1000 << 16);
    for (int64_t i = 0; i < 200; ++i) {
        for (const Target& target : bench.access({i << 16, 1 << 14})) bench.arrive(target);
    }
    const size_t ahead = bench.readahead.ahead();
    // It takes the next access for the one it told, though it was another.
    bench.predictor.rewrite({script.begin() + 201, script.end()});
    bench.readahead.demand({12345, 10}, bench.now);
    EXPECT_EQ(bench.readahead.ahead(), ahead - 1);
}

TEST(Readahead, WhatWasFetchedIsTakenUpAgainWhenThePredictionComesBack) {
    const auto script = row(4000, 1 << 16, 1 << 14);
    Bench bench(script, uint64_t{4000} << 16);
    uint64_t fetched = 0;
    const auto access = [&](int64_t i) {
        for (const Target& target : bench.access({i << 16, 1 << 14}, 10'000)) {
            fetched += target.extent.size;
            bench.arrive(target);
        }
    };
    for (int64_t i = 0; i < 1000; ++i) access(i);
    ASSERT_GT(bench.readahead.ahead(), 100U);
    bench.predictor.be_silent(true);
    access(1000);
    access(1001);
    EXPECT_EQ(bench.readahead.ahead(), 0U);
    bench.predictor.be_silent(false);
    for (int64_t i = 1002; i < 2000; ++i) access(i);
    EXPECT_EQ(bench.readahead.counts().wasted_size, 0U);
    EXPECT_LE(fetched, uint64_t{2000 + 256} << 14) << "nothing was fetched twice";
}

TEST(Readahead, LatenessForLackOfRoomDoesNotRaiseTheDistance) {
    for (const uint64_t room : {uint64_t{64} << 10, uint64_t{16} << 20}) {
        Options options;
        options.unused_size_max = room;
        Bench bench(row(4000, 1 << 16, 1 << 14), uint64_t{4000} << 16, 0, options);
        std::vector<Target> open;
        for (int64_t i = 0; i < 1000; ++i) {
            for (const Target& target : bench.access({i << 16, 1 << 14})) open.push_back(target);
            // Each arrives only after it was wanted.
            std::erase_if(open, [&](const Target& target) {
                const bool wanted = target.extent.offset <= static_cast<uint64_t>(i) << 16;
                if (wanted) bench.arrive(target);
                return wanted;
            });
        }
        EXPECT_GT(bench.readahead.counts().late, 900U);
        if (room == 64 << 10) {
            EXPECT_EQ(bench.readahead.feedback().scale(), 1);
        } else {
            EXPECT_GT(bench.readahead.feedback().scale(), 1);
        }
    }
}

TEST(Readahead, AnAccessAcrossTheEndIsUsedUpAtTheEnd) {
    Bench bench(row(20, 10'000, 10'000), 95'000);
    for (int64_t i = 0; i < 20; ++i) {
        for (const Target& target : bench.access({i * 10'000, 10'000})) bench.arrive(target);
    }
    EXPECT_EQ(bench.readahead.counts().demanded_size, 95'000U);
    EXPECT_EQ(bench.readahead.unused_size(), 0U);
    EXPECT_EQ(bench.readahead.counts().wasted_size, 0U);
}

TEST(Readahead, AnotherFutureGivesUpWhatIsNotWantedAfter64Accesses) {
    Bench bench(row(1000, 1 << 16, 1 << 14), 8000 << 16);
    for (int64_t i = 0; i < 200; ++i) {
        for (const Target& target : bench.access({i << 16, 1 << 14})) bench.arrive(target);
    }
    const uint64_t unused = bench.readahead.unused_size();
    ASSERT_GT(unused, 0U);
    const auto other = row(1000, 1 << 16, 1 << 14, int64_t{4000} << 16);
    bench.predictor.rewrite(other);
    for (size_t i = 0; i < 70; ++i) {
        for (const Target& target : bench.access(other[i])) bench.arrive(target);
    }
    EXPECT_EQ(bench.readahead.counts().wasted_size, unused);
    EXPECT_EQ(bench.budget.reserved(), bench.readahead.unused_size());
}

TEST(Readahead, ErrorsAreDroppedAndTheRangeIsLeftToDemand) {
    Bench bench(row(1000, 1 << 16, 1 << 14), 1000 << 16);
    uint64_t failed = 0;
    for (int64_t i = 0; i < 100; ++i) {
        for (const Target& target : bench.access({i << 16, 1 << 14})) {
            bench.arrive(target, Outcome::kFailed);
            ++failed;
        }
        EXPECT_EQ(bench.budget.reserved(), 0U);
    }
    EXPECT_GT(failed, 8U);
    EXPECT_EQ(bench.readahead.counts().failed, failed);
    EXPECT_EQ(bench.readahead.counts().fetched_size, 0U);
}

TEST(Readahead, WrongPredictionsLoseAFirstWindowAndTwoPercentWhateverIsRead) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        constexpr uint64_t kSize = uint64_t{1} << 40;
        FetchModel model(1'000'000, 1e9);
        Budget budget(1 << 30);
        Flights flights(256);
        GuessingPredictor predictor(seed, kSize);
        Readahead readahead({}, 1, kSize, {model, budget, flights}, predictor);
        base::Prng prng(seed);
        uint64_t demanded = 0, fetched = 0;
        for (uint64_t i = 0; i < 5000; ++i) {
            const auto size = static_cast<int64_t>(1 + prng.below(1 << 17));
            readahead.demand({static_cast<int64_t>(prng.below(kSize - (1 << 17))), size}, i * 1000);
            demanded += static_cast<uint64_t>(size);
            std::array<Target, 64> out;
            const size_t count = readahead.next(i * 1000, out);
            for (size_t k = 0; k < count; ++k) {
                fetched += out[k].extent.size;
                while (!flights.find(out[k].flight)->under_way) flights.start();
                flights.finish(out[k].flight);
                readahead.completed(out[k].flight, Outcome::kArrived);
            }
            ASSERT_LE(static_cast<double>(fetched),
                      0.02 * static_cast<double>(demanded) + (4 << 17));
        }
    }
}

TEST(Readahead, ABadPredictorIsSuspendedAndAGoodOneReArms) {
    Options generous;
    generous.credit_size_first = 1 << 30;
    generous.unused_size_max = 1 << 30;
    constexpr uint64_t kSize = uint64_t{1} << 40;
    Bench bench(row(100'000, 1 << 20, 4096), kSize, 0, generous);
    bench.budget = Budget(uint64_t{1} << 40);
    base::Prng prng(3);
    for (int i = 0; i < 2000 && !bench.readahead.feedback().suspended(); ++i) {
        // Each access ends one future and begins another.
        bench.predictor.rewrite(row(1000, 4096, 4096, static_cast<int64_t>(prng.below(kSize / 2))));
        const auto where = static_cast<int64_t>(prng.below(kSize / 2));
        for (const Target& target : bench.access({where, 4096})) bench.arrive(target);
    }
    ASSERT_TRUE(bench.readahead.feedback().suspended());
    const auto good = row(1000, 1 << 20, 4096);
    bench.predictor.rewrite(good);
    EXPECT_TRUE(bench.access({7, 7}).empty());
    EXPECT_TRUE(bench.access(good[0]).empty());
    EXPECT_FALSE(bench.access(good[1]).empty()) << "two confirmations were enough";
}

TEST(Readahead, AdviceTellsSoonFromOnceAndKeepsQuietWithoutAPrediction) {
    std::vector<Access> script = row(300, 1 << 16, 1 << 14);
    for (int64_t i = 0; i < 10; ++i) script.push_back({i << 16, 1 << 14});  // back to the start
    Bench bench(script, 400 << 16);
    for (size_t i = 0; i < 20; ++i) {
        for (const Target& target : bench.access(script[i])) bench.arrive(target);
    }
    EXPECT_EQ(bench.readahead.advise({uint64_t{21} << 16, 4096}), Advice::kUsedSoon);
    EXPECT_EQ(bench.readahead.advise({uint64_t{200} << 16, 4096}), Advice::kUsedSoon);
    EXPECT_EQ(bench.readahead.advise({uint64_t{5} << 16, 4096}), Advice::kUsedOnce)
        << "it comes back, but beyond the horizon";
    for (size_t i = 20; i < 100; ++i) {
        for (const Target& target : bench.access(script[i])) bench.arrive(target);
    }
    EXPECT_EQ(bench.readahead.advise({uint64_t{5} << 16, 4096}), Advice::kUsedSoon);
    bench.predictor.be_silent(true);
    bench.access({3, 3});
    EXPECT_EQ(bench.readahead.advise({uint64_t{5} << 16, 4096}), Advice::kNone);
}

TEST(Readahead, AMissOnWhatAPrefetchPushedOutIsPollutionOnce) {
    Bench bench(row(10, 4096, 4096), 1 << 20);
    bench.readahead.displaced({8192, 4096});
    bench.readahead.missed({0, 8192});
    EXPECT_EQ(bench.readahead.counts().polluted, 0U);
    bench.readahead.missed({8192, 1});
    bench.readahead.missed({8192, 1});
    EXPECT_EQ(bench.readahead.counts().polluted, 1U);
}

// Has the bytes in [from, to).
struct Part : Presence {
    Extent missing(uint64_t /*file*/, const Extent& range) override {
        if (!overlap(have, range)) return range;
        if (have.contains(range.offset)) {
            const uint64_t offset = std::min(have.end(), range.end());
            return {offset, range.end() - offset};
        }
        return {range.offset, have.offset - range.offset};
    }
    Extent have;
};

TEST(Readahead, WhatTheCacheHasIsNotFetchedAgain) {
    Part part;
    part.have = {20'480, 40'960};
    FetchModel model(1'000'000, 1e9);
    Budget budget(64 << 20);
    Flights flights(64);
    ScriptedPredictor predictor(row(10, 16'384, 16'384), 0);
    Readahead readahead({}, 1, 10 * 16'384, {model, budget, flights, &part}, predictor);
    readahead.demand({0, 16'384}, 0);
    std::array<Target, 8> out;
    ASSERT_EQ(readahead.next(0, out), 2U);
    EXPECT_EQ(out[0].extent, (Extent{16'384, 4096}));
    EXPECT_EQ(out[1].extent, (Extent{61'440, 10 * 16'384 - 61'440}));
}

TEST(Readahead, BytesThatAnotherStreamUsedAreHeldNoMore) {
    Bench bench(row(100, 1 << 16, 1 << 16), 100 << 16);
    for (const Target& target : bench.access({0, 1 << 16})) bench.arrive(target);
    ASSERT_GT(bench.budget.reserved(), 0U);
    bench.readahead.used_by_other({0, 100 << 16});
    EXPECT_EQ(bench.budget.reserved(), 0U);
    EXPECT_EQ(bench.readahead.counts().used_size, bench.readahead.counts().fetched_size);
    EXPECT_EQ(bench.readahead.counts().late, 0U);
}

TEST(Readahead, WhatIsUsedOfAFetchIsNotSparedForTheRestOfIt) {
    Bench bench(row(1000, 1 << 14, 1 << 14), 1000 << 14);
    for (int64_t i = 0; i < 100; ++i) {
        for (const Target& target : bench.access({i << 14, 1 << 14})) bench.arrive(target);
        EXPECT_EQ(bench.readahead.advise({static_cast<uint64_t>(i) << 14, 1 << 14}),
                  Advice::kUsedOnce)
            << i;
    }
}

TEST(Readahead, WhatIsQueuedBeyondANewEndIsNotFetched) {
    Bench bench(row(100, 1 << 16, 1 << 14), 100 << 16);
    std::vector<Target> open = bench.access({0, 1 << 14});
    ASSERT_GE(open.size(), 3U);
    bench.flights.start();
    bench.readahead.resize(1 << 16);
    EXPECT_FALSE(bench.flights.start()) << "one was under way, the others are withdrawn";
    bench.flights.finish(open[0].flight);
    bench.readahead.completed(open[0].flight, Outcome::kArrived);
    EXPECT_EQ(bench.budget.reserved(), 0U);
    EXPECT_EQ(bench.readahead.counts().wasted_size, 0U);
    EXPECT_TRUE(bench.access({1 << 16, 1 << 14}).empty());
}

TEST(Readahead, AFileThatGrowsIsReadAheadInWholeGranules) {
    Bench bench(row(100, 10'000, 10'000), 30'000);
    for (const Target& target : bench.access({0, 10'000})) bench.arrive(target);
    const size_t ahead = bench.readahead.ahead();
    ASSERT_GT(ahead, 3U) << "it counts as fetched up to the end";
    bench.readahead.resize(1 << 20);
    const std::vector<Target> targets = bench.access({10'000, 10'000});
    ASSERT_FALSE(targets.empty());
    for (const Target& target : targets) {
        EXPECT_EQ(target.extent.offset % 4096, 0U);
        EXPECT_GE(target.extent.offset, 30'000U);
        bench.arrive(target);
    }
    EXPECT_EQ(bench.readahead.counts().wasted_size, 0U);
}

TEST(Readahead, PagesPushedOutOneByOneAreAllRemembered) {
    Bench bench(row(10, 4096, 4096), 1 << 24);
    for (uint64_t page = 0; page < 1000; ++page) bench.readahead.displaced({page * 4096, 4096});
    for (uint64_t page = 0; page < 1000; page += 10) bench.readahead.missed({page * 4096, 4096});
    EXPECT_EQ(bench.readahead.counts().polluted, 100U);
}

TEST(Readahead, AnAccessAllocatesNothing) {
    const auto script = row(5000, 1 << 16, 1 << 14);
    Bench bench(script, uint64_t{5000} << 16);
    std::array<Target, 64> out;
    const size_t before = base::allocations;
    for (const Access& one : script) {
        bench.now += 50'000;
        bench.readahead.demand(one, bench.now);
        const size_t count = bench.readahead.next(bench.now, out);
        for (size_t i = 0; i < count; ++i) bench.arrive(out[i]);
        bench.readahead.served(bench.now);
        (void)bench.readahead.advise({0, 4096});
    }
    EXPECT_EQ(base::allocations, before);
    EXPECT_GT(bench.readahead.counts().used_size, uint64_t{4900} << 14);
}

}  // namespace
}  // namespace penstock::readahead
