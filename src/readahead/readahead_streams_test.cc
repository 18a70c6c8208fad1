// Goal: streams that share a cache never fetch a byte twice at once, nor beyond the end of a file
// that shrinks; demand goes first; the bytes they hold are the budget's, and stay within it; harm
// is bounded for all of them together.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "base/prng.h"
#include "readahead/readahead.h"
#include "readahead/recordings_fixture.h"

namespace penstock::readahead {
namespace {

using access::Access;

// Goes on by one with every access, whatever it was.
class PassingPredictor : public Predictor {
public:
    explicit PassingPredictor(int64_t most = INT64_MAX) : most_(most) {}
    void observe(const Access& /*access*/, uint64_t /*time_ns*/) override { ++seen_; }
    size_t predict_from(size_t skip, std::span<Access> out) const override {
        size_t count = 0;
        for (auto at = static_cast<int64_t>(skip); count < out.size() && at < most_; ++at) {
            out[count++] = {(seen_ + at) << 20, 1 << 16};
        }
        return count;
    }

private:
    int64_t seen_ = 0;
    int64_t most_;  // accesses told at a time
};

TEST(Streams, AccessesThatNeverCameDoNotStopItInTheEnd) {
    PassingPredictor predictor;
    FetchModel model(1'000'000, 1e9);
    Budget budget(1 << 30);
    Flights flights(256);
    Readahead readahead({}, 1, uint64_t{1} << 40, {model, budget, flights}, predictor);
    uint64_t used = 0;
    for (int64_t i = 0; i < 20'000; ++i) {
        const auto now = static_cast<uint64_t>(i) * 100'000;
        if (i == 15'000) used = readahead.counts().used_size;
        readahead.demand(i % 20 == 0 ? Access{5, 5} : Access{i << 20, 1 << 16}, now);
        std::array<Target, 64> out;
        const size_t count = readahead.next(now, out);
        while (flights.start()) continue;
        for (size_t k = 0; k < count; ++k) {
            flights.finish(out[k].flight);
            readahead.completed(out[k].flight, Outcome::kArrived);
        }
        readahead.served(now);
    }
    EXPECT_GE(readahead.counts().used_size - used, uint64_t{4700} << 16);
    EXPECT_LE(readahead.unused_size(), uint64_t{64} << 16);
}

TEST(Streams, WhoKnowsTheNextAccessOnlyDoesNotCallTheRestUsedOnce) {
    for (const int64_t most : {1, 2}) {
        PassingPredictor predictor(most);
        FetchModel model(1'000'000, 1e9);
        Budget budget(1 << 30);
        Flights flights(256);
        Readahead readahead({}, 1, uint64_t{1} << 40, {model, budget, flights}, predictor);
        readahead.demand({0, 1 << 16}, 0);
        EXPECT_EQ(readahead.advise({1 << 20, 4096}), Advice::kUsedSoon);
        EXPECT_EQ(readahead.advise({0, 4096}), most == 1 ? Advice::kNone : Advice::kUsedOnce);
    }
}

TEST(Streams, OneThatIsOverLeavesNothingInTheQueue) {
    Budget budget(64 << 20);
    FetchModel model(1'000'000, 1e9);
    Flights flights(256);
    ScriptedPredictor predictor({{{0, 4096}, {1 << 20, 4096}, {2 << 20, 4096}}}, 0);
    {
        Readahead readahead({}, 1, 4 << 20, {model, budget, flights}, predictor);
        readahead.demand({0, 4096}, 0);
        std::array<Target, 64> out;
        ASSERT_GT(readahead.next(0, out), 0U);
    }
    EXPECT_EQ(flights.count(), 0U);
    EXPECT_EQ(budget.reserved(), 0U);
    EXPECT_EQ(budget.trust(), budget.limit() / 4) << "nothing was fetched";
}

TEST(Streams, ManyShortStreamsThatAreMisledLoseTogetherWhatOneMay) {
    constexpr uint64_t kSize = uint64_t{1} << 40;
    FetchModel model(1'000'000, 1e9);
    Budget budget(64 << 20);
    Flights flights(256);
    base::Prng prng(1);
    uint64_t demanded = 0, fetched = 0;
    for (uint64_t stream = 0; stream < 1000; ++stream) {
        GuessingPredictor predictor(stream, kSize);
        Readahead readahead({}, 1, kSize, {model, budget, flights}, predictor);
        for (uint64_t i = 0; i < 32; ++i) {
            readahead.demand({static_cast<int64_t>(prng.below(kSize - (1 << 15))), 1 << 15}, i);
            demanded += 1 << 15;
            std::array<Target, 64> out;
            const size_t count = readahead.next(i, out);
            while (flights.start()) continue;
            for (size_t k = 0; k < count; ++k) {
                fetched += out[k].extent.size;
                flights.finish(out[k].flight);
                readahead.completed(out[k].flight, Outcome::kArrived);
            }
        }
    }
    EXPECT_LE(fetched, demanded / 50 + budget.limit() / 4);
}

// Streams on one cache, of two files that grow and shrink, with everything that can happen to a
// fetch happening at random.
class RandomCache {
public:
    explicit RandomCache(uint64_t seed) : prng_(seed) {
        options_.granule = uint64_t{1} << prng_.below(17);
        options_.request_size_max = uint64_t{4096} << prng_.below(10);
        for (uint64_t& size : file_size_) size = 1 + prng_.below(64 << 20);
        for (size_t i = 1 + prng_.below(4); i > 0; --i) add_stream();
    }
    void play() {
        for (int step = 0; step < 3000 && !testing::Test::HasFatalFailure(); ++step) {
            now_ += prng_.below(300'000);
            if (prng_.below(300) == 0) replace_stream(prng_.below(streams_.size()));
            if (prng_.below(200) == 0) resize(prng_.below(2), 1 + prng_.below(64 << 20));
            access(*streams_[prng_.below(streams_.size())]);
            for (uint64_t i = prng_.below(8); i > 0; --i) start();
            while (!under_way_.empty() && prng_.below(3) != 0)
                finish(prng_.below(under_way_.size()));
            check();
        }
        streams_.clear();
        ASSERT_EQ(budget_.reserved(), 0U);
    }

private:
    struct Stream {
        Stream(RandomCache& cache, uint64_t of, std::vector<Access> accesses, size_t learning)
            : file(of),
              script(std::move(accesses)),
              predictor(script, learning),
              readahead(cache.options_, of, cache.file_size_[of],
                        {cache.model_, cache.budget_, cache.flights_}, predictor) {}
        uint64_t file;
        std::vector<Access> script;
        size_t at = 0;
        ScriptedPredictor predictor;
        Readahead readahead;
    };

    void add_stream() {
        std::vector<Access> script;
        Access at{0, 1};
        while (script.size() < 1000) {
            const auto stride = static_cast<int64_t>(prng_.below(1 << 18)) - (1 << 16);
            const auto size = static_cast<int64_t>(prng_.below(1 << 16));
            for (uint64_t trips = prng_.below(200); trips > 0; --trips) {
                script.push_back(at);
                at = {at.offset + stride, size};
            }
            if (prng_.below(2) == 0) at.offset = static_cast<int64_t>(prng_.below(64 << 20));
        }
        streams_.push_back(
            std::make_unique<Stream>(*this, prng_.below(2), std::move(script), prng_.below(10)));
    }
    void replace_stream(size_t index) {
        streams_.erase(streams_.begin() + static_cast<std::ptrdiff_t>(index));
        add_stream();
    }
    void resize(uint64_t file, uint64_t size) {
        file_size_[file] = size;
        for (auto& stream : streams_) {
            if (stream->file == file) stream->readahead.resize(size);
        }
    }
    void access(Stream& stream) {
        if (stream.at == stream.script.size()) return;
        Access one = stream.script[stream.at];
        if (prng_.below(100) == 0) {
            one = {static_cast<int64_t>(prng_.below(64 << 20)), 99};
        } else {
            ++stream.at;
        }
        stream.readahead.demand(one, now_);
        claim(stream.file, one);
        std::array<Target, 16> out;
        const size_t count = stream.readahead.next(now_, {out.data(), prng_.below(17)});
        for (size_t i = 0; i < count; ++i) {
            const Extent& extent = out[i].extent;
            ASSERT_FALSE(extent.empty());
            ASSERT_LE(extent.end(), file_size_[stream.file]);
            ASSERT_LE(extent.size, std::max(options_.request_size_max, options_.granule));
            ASSERT_EQ(extent.offset % options_.granule, 0U);
            ASSERT_TRUE(extent.end() % options_.granule == 0 ||
                        extent.end() == file_size_[stream.file]);
        }
        stream.readahead.served(now_ += prng_.below(100));
        (void)stream.readahead.advise({prng_.below(64 << 20), 4096});
    }
    // A demand for an access, of which nothing is in the cache.
    void claim(uint64_t file, const Access& one) {
        if (one.offset < 0 || one.size <= 0) return;
        const auto offset = static_cast<uint64_t>(one.offset) / options_.granule * options_.granule;
        const uint64_t end = std::min(
            (static_cast<uint64_t>(one.offset + one.size) + options_.granule - 1) /
                options_.granule * options_.granule,
            file_size_[file]);
        for (uint64_t at = offset; at < end;) {
            const Claim got = flights_.claim(file, {at, end - at}, Priority::kDemand, now_);
            if (got.outcome == Claim::Outcome::kFull) {
                start();
                finish(prng_.below(under_way_.size()));
                continue;
            }
            at = got.extent.end();
            const auto flight = flights_.find(got.flight);
            ASSERT_TRUE(flight);
            ASSERT_EQ(flight->priority, Priority::kDemand) << "who meets a prefetch promotes it";
            if (!flight->under_way) demands_.push_back(got.flight);
        }
    }
    void start() {
        const auto flight = flights_.start();
        if (!flight) return;
        for (const Flight& other : under_way_) {
            ASSERT_FALSE(other.file == flight->file && overlap(other.extent, flight->extent));
        }
        if (flight->priority == Priority::kPrefetch) {
            ASSERT_LE(flight->extent.end(), file_size_[flight->file]);
            for (const FlightId demand : demands_) {
                const auto queued = flights_.find(demand);
                ASSERT_FALSE(queued && !queued->under_way) << "a demand is behind a prefetch";
            }
            demands_.clear();
        }
        under_way_.push_back(*flight);
    }
    void finish(size_t index) {
        const Flight flight = under_way_[index];
        under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(index));
        ASSERT_TRUE(flights_.finish(flight.id));
        const auto outcome = static_cast<Outcome>(prng_.below(2));
        for (auto& stream : streams_) {
            stream->readahead.completed(flight.id, outcome);
            if (stream->file != flight.file) continue;
            if (prng_.below(20) == 0) stream->readahead.evicted(flight.extent);
            if (prng_.below(20) == 0) {
                const uint64_t size = 1 + prng_.below(flight.extent.size);
                stream->readahead.evicted({flight.extent.offset, size});
            }
            if (prng_.below(20) == 0) stream->readahead.used_by_other(flight.extent);
        }
    }
    void check() {
        uint64_t unused = 0;
        for (const auto& stream : streams_) {
            unused += stream->readahead.unused_size();
            ASSERT_LE(stream->readahead.unused_size(), options_.unused_size_max);
        }
        ASSERT_TRUE(flights_.check_invariants());
        ASSERT_EQ(budget_.reserved(), unused);
        ASSERT_LE(unused, budget_.limit());
    }

    base::Prng prng_;
    FetchModel model_{1'000'000, 1e9};
    Budget budget_{(1 + prng_.below(16)) << 20};
    Flights flights_{8 + prng_.below(64)};
    Options options_;
    std::array<uint64_t, 2> file_size_{};
    std::vector<std::unique_ptr<Stream>> streams_;
    std::vector<Flight> under_way_;
    std::vector<FlightId> demands_;
    uint64_t now_ = 0;
};

TEST(Streams, OfRandomProgramsKeepEveryAccount) {
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        RandomCache(seed).play();
        ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    }
}

}  // namespace
}  // namespace penstock::readahead
