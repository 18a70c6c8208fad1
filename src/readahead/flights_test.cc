// Goal: no byte is fetched twice at once, no claimed byte is forgotten, demand goes first: all
// interleavings of a table of 2 and 3 over a file of three bytes, and random programs against a
// map of bytes.
#include "readahead/flights.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "base/prng.h"

namespace penstock::readahead {
namespace {

using Result = Claim::Outcome;

// The table as a reader of the header would write it: one owner for each byte.
struct Reference {
    std::array<FlightId, 3> owner{};
    std::vector<Flight> flights;

    Flight* find(FlightId id) {
        for (Flight& one : flights) {
            if (one.id == id) return &one;
        }
        return nullptr;
    }
    void forget(FlightId id) {
        std::erase_if(flights, [id](const Flight& one) { return one.id == id; });
        for (FlightId& one : owner) one = one == id ? 0 : one;
    }
};

struct World {
    Flights flights;
    Reference reference;
    FlightId newest = 0;
};

void claim(World& world, const Extent& wanted, Priority priority) {
    Reference& reference = world.reference;
    const size_t places = world.flights.capacity();
    const Claim got = world.flights.claim(7, wanted, priority, 0);
    const FlightId first = reference.owner[wanted.offset];
    uint64_t end = wanted.offset;
    while (end < wanted.end() && reference.owner[end] == first) ++end;
    ASSERT_EQ(got.extent, (Extent{wanted.offset, end - wanted.offset}));
    if (first != 0) {
        ASSERT_EQ(got.outcome, Result::kUnderWay);
        ASSERT_EQ(got.flight, first);
        Flight& flight = *reference.find(first);
        if (priority == Priority::kDemand && flight.priority == Priority::kPrefetch) {
            flight.priority = Priority::kDemand;
            flight.promoted = true;
        }
        return;
    }
    if (reference.flights.size() == places) {
        ASSERT_EQ(got.outcome, Result::kFull);
        return;
    }
    ASSERT_EQ(got.outcome, Result::kTaken);
    ASSERT_GT(got.flight, world.newest);
    world.newest = got.flight;
    reference.flights.push_back({got.flight, 7, got.extent, priority, false, false, 0});
    for (uint64_t at = wanted.offset; at < end; ++at) reference.owner[at] = got.flight;
}

void start(World& world) {
    const Flight* expected = nullptr;
    for (const Flight& one : world.reference.flights) {
        if (one.under_way) continue;
        const bool better = expected == nullptr || one.priority < expected->priority ||
                            (one.priority == expected->priority && one.id < expected->id);
        if (better) expected = &one;
    }
    const auto got = world.flights.start();
    ASSERT_EQ(got.has_value(), expected != nullptr);
    if (!got) return;
    ASSERT_EQ(got->id, expected->id);
    ASSERT_EQ(got->extent, expected->extent);
    ASSERT_EQ(got->promoted, expected->promoted);
    world.reference.find(got->id)->under_way = true;
}

void end(World& world, size_t index, bool withdraw) {
    if (index >= world.reference.flights.size()) return;
    const Flight flight = world.reference.flights[index];
    if (withdraw) {
        const bool may = !flight.under_way && flight.priority == Priority::kPrefetch;
        ASSERT_EQ(world.flights.withdraw(flight.id), may);
        if (may) world.reference.forget(flight.id);
    } else {
        ASSERT_EQ(world.flights.finish(flight.id), flight.under_way);
        if (flight.under_way) world.reference.forget(flight.id);
    }
}

constexpr size_t kClaims = 6 * 2;  // the extents of three bytes, by demand and prefetch
constexpr size_t kActs = kClaims + 1 + 3 + 3;

void act(World& world, size_t which) {
    constexpr std::array<Extent, 6> kExtents{{{0, 1}, {1, 1}, {2, 1}, {0, 2}, {1, 2}, {0, 3}}};
    if (which < kClaims) {
        claim(world, kExtents[which / 2], which % 2 ? Priority::kDemand : Priority::kPrefetch);
    } else if (which == kClaims) {
        start(world);
    } else {
        end(world, (which - kClaims - 1) % 3, which - kClaims - 1 >= 3);
    }
    ASSERT_TRUE(world.flights.check_invariants());
    ASSERT_EQ(world.flights.count(), world.reference.flights.size());
}

void explore(const World& world, size_t depth, const std::string& path) {
    if (depth == 0) return;
    for (size_t which = 0; which < kActs; ++which) {
        World next = world;
        act(next, which);
        const std::string here = path + " " + std::to_string(which);
        ASSERT_FALSE(testing::Test::HasFatalFailure()) << "acts" << here;
        explore(next, depth - 1, here);
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(Flights, EveryInterleavingOfFiveActsIsAsTheReference) {
    for (const size_t capacity : {2, 3}) explore({Flights(capacity), {}}, 5, "");
}

TEST(Flights, RandomProgramsAgreeWithTheReference) {
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        World world{Flights(2 + prng.below(2)), {}};
        for (int i = 0; i < 300 && !HasFatalFailure(); ++i) act(world, prng.below(kActs));
    }
}

TEST(Flights, FilesDoNotMeet) {
    Flights flights(8);
    EXPECT_EQ(flights.claim(1, {0, 10}, Priority::kPrefetch, 0).outcome, Result::kTaken);
    EXPECT_EQ(flights.claim(2, {0, 10}, Priority::kDemand, 0).outcome, Result::kTaken);
    EXPECT_EQ(flights.promotions(), 0U);
}

TEST(Flights, PrefetchesLeaveOnePlaceInEightToDemands) {
    Flights flights(16);
    uint64_t at = 0;
    while (flights.claim(1, {at, 1}, Priority::kPrefetch, 0).outcome == Result::kTaken) at += 2;
    EXPECT_EQ(flights.count(), 14U);
    EXPECT_EQ(flights.claim(1, {at, 1}, Priority::kDemand, 0).outcome, Result::kTaken);
    EXPECT_EQ(flights.claim(1, {at + 2, 1}, Priority::kDemand, 0).outcome, Result::kTaken);
    EXPECT_EQ(flights.claim(1, {at + 4, 1}, Priority::kDemand, 0).outcome, Result::kFull);
}

TEST(Flights, PrefetchesUnderWayAreLimitedAndAPromotedOneIsNoPrefetchAnyMore) {
    Flights flights(16);
    for (uint64_t at = 0; at < 4; ++at) flights.claim(1, {at, 1}, Priority::kPrefetch, 0);
    const auto first = flights.start(1);
    ASSERT_TRUE(first);
    EXPECT_FALSE(flights.start(1));
    const Claim met = flights.claim(1, {0, 1}, Priority::kDemand, 99);
    EXPECT_EQ(met.flight, first->id);
    EXPECT_EQ(flights.find(first->id)->claimed_ns, 99U);
    EXPECT_TRUE(flights.start(1));
    EXPECT_FALSE(flights.start(1));
    EXPECT_TRUE(flights.finish(first->id));
    EXPECT_FALSE(flights.start(1)) << "the promoted one was not counted";
    EXPECT_FALSE(flights.finish(first->id));
}

}  // namespace
}  // namespace penstock::readahead
