// Goal: a front that follows the driver's protocol reads ahead of a stream, accounts for every
// fetch, and ends with an empty budget, whatever becomes of its fetches.
#include "readahead/driver.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <set>
#include <vector>

#include "readahead/detector_predictor.h"

namespace penstock::readahead {
namespace {

constexpr uint64_t kFile = 7, kPiece = 4096, kStride = 64 << 10, kFileSize = 1000 * kStride;

// A front whose cache is a set of pages.
struct Front {
    Driver driver{{}, nullptr};
    std::set<uint64_t> pages;
    uint64_t now = 0, announced = 0, missed = 0;

    explicit Front(uint64_t streams = 1) {
        for (uint64_t i = 0; i < streams; ++i)
            driver.begin(i, kFile, kFileSize, std::make_unique<DetectorPredictor>());
    }
    void read(uint64_t stream, uint64_t offset, Driver::End end) {
        now += 10'000;
        driver.observe(stream, {static_cast<int64_t>(offset), kPiece}, now);
        if (!pages.contains(offset)) {
            ++missed;
            (void)driver.demand(stream, {offset, kPiece}, now);
        }
        std::array<Target, 64> targets;
        driver.plan(stream, now, targets);
        while (const auto flight = driver.start(now)) {
            const uint64_t started = now;
            now += end == Driver::End::kArrived ? 50'000 : 0;
            announced += flight->priority == Priority::kPrefetch ? 1 : 0;
            EXPECT_EQ(flight->file, kFile);
            EXPECT_EQ(flight->stream.has_value(), flight->priority == Priority::kPrefetch);
            if (end != Driver::End::kFailed)
                for (uint64_t at = 0; at < flight->extent.size; at += kPiece)
                    pages.insert(flight->extent.offset + at);
            driver.ended(*flight, end, started, now);
        }
        driver.served(stream, now);
    }
};

TEST(Driver, ReadsAheadOfAStrideWhereArrivalsAreReportedAndWhereNot) {
    for (const auto end : {Driver::End::kArrived, Driver::End::kAnnounced}) {
        Front front;
        for (uint64_t i = 0; i < 500; ++i) front.read(0, i * kStride, end);
        EXPECT_LT(front.missed, 20u);
        EXPECT_GT(front.announced, 400u);
        EXPECT_EQ(front.driver.find(0)->counts().wasted_size, 0u);
        EXPECT_EQ(front.driver.flights().count(), 0u);
        front.driver.finish(0);
        EXPECT_EQ(front.driver.find(0), nullptr);
        EXPECT_EQ(front.driver.budget().reserved(), 0u);
    }
}

TEST(Driver, AFetchThatFailsIsLeftToTheDemand) {
    Front front;
    for (uint64_t i = 0; i < 200; ++i) front.read(0, i * kStride, Driver::End::kFailed);
    EXPECT_EQ(front.missed, 200u);
    EXPECT_GT(front.driver.find(0)->counts().failed, 0u);
    EXPECT_EQ(front.driver.find(0)->counts().fetched_size, 0u);
    EXPECT_EQ(front.driver.budget().reserved(), 0u);
}

TEST(Driver, StreamsShareTheBudgetAndEventsOfAFinishedStreamAreIgnored) {
    Front front(2);
    for (uint64_t i = 0; i < 100; ++i) {
        front.read(0, i * kStride, Driver::End::kAnnounced);
        front.read(1, kFileSize - (i + 1) * kStride, Driver::End::kAnnounced);
    }
    EXPECT_EQ(front.driver.budget().reserved(),
              front.driver.find(0)->unused_size() + front.driver.find(1)->unused_size());
    front.now += 10'000;
    front.driver.observe(0, {100 * kStride, kPiece}, front.now);
    const Claim claim = front.driver.demand(0, {500 * kStride, kPiece}, front.now);
    const auto flight = front.driver.start(front.now);
    ASSERT_TRUE(flight.has_value());
    EXPECT_EQ(flight->id, claim.flight);
    front.driver.finish(0);
    front.driver.finish(1);
    front.driver.ended(*flight, Driver::End::kArrived, front.now, front.now + 1);
    for (uint64_t stream : {0, 1, 2}) {
        front.driver.used(stream, {0, kPiece});
        front.driver.evicted(stream, {0, kPiece});
        front.driver.displaced(stream, {0, kPiece});
        front.driver.served(stream, front.now);
        std::array<Target, 4> none;
        EXPECT_EQ(front.driver.plan(stream, front.now, none), 0u);
    }
    EXPECT_EQ(front.driver.flights().count(), 0u);
    EXPECT_EQ(front.driver.budget().reserved(), 0u);
}

}  // namespace
}  // namespace penstock::readahead
