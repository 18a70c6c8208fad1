// Goal: rings give each team the frames that it used longest ago, shares are dealt anew to who has
// less, and whatever teams do in whatever order, each slab stays in one ring.
#include "penstock/device/frame_ring.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/prng.h"
#include "page_cache/page_cache_fixture.h"

namespace penstock::page_cache {
namespace {

class FrameRingTest : public ::testing::Test {
protected:
    FileSystemState& state() { return memory_.state(); }
    ReadaheadPlace& place(uint64_t index) { return state().places[index]; }
    uint64_t slabs(uint64_t index) { return place(index).slab_count; }
    device::FrameRange next(uint64_t index, uint32_t want, uint32_t least = 1) {
        return device::next_frames(state(), &place(index), want, least);
    }
    // As many frames as there are in a slab, however many calls that takes.
    std::vector<FrameIndex> take_slab(uint64_t index) {
        std::vector<FrameIndex> frames;
        while (frames.size() < state().slab_frames) {
            const device::FrameRange range = next(index, 3);
            if (range.count == 0) break;
            for (uint32_t i = 0; i < range.count; ++i) frames.push_back(range.first + i);
        }
        return frames;
    }

    static constexpr uint32_t kPlaces = 4;
    Memory memory_{{.frames = 250, .teams = kPlaces, .permits = kPlaces}};
};

TEST_F(FrameRingTest, OneTeamHasAllOfTheCacheAndItsOldestFirst) {
    std::vector<FrameIndex> first, second;
    for (int i = 0; i < 250; ++i) first.push_back(next(0, 1).first);
    for (FrameIndex frame = 0; frame < 250; ++frame) ASSERT_EQ(first[frame], frame);
    EXPECT_EQ(slabs(0), state().slab_count);
    for (int i = 0; i < 250; ++i) second.push_back(next(0, 1).first);
    EXPECT_EQ(second, first) << "in the order in which they were used";
    EXPECT_EQ(check_invariants(state()), 0);
}

TEST_F(FrameRingTest, AnEndThatIsTooShortIsPassedOver) {
    const uint32_t size = state().slab_frames;
    ASSERT_GE(size, 8u);
    EXPECT_EQ(next(0, size - 2).count, size - 2);
    const device::FrameRange next_one = next(0, 4, 3);
    EXPECT_EQ(next_one.first, size);
    EXPECT_EQ(next_one.count, 4u);
    EXPECT_EQ(next(0, size, 1).count, size - 4) << "what is left of this one";
}

TEST_F(FrameRingTest, WhoHasLessThanAShareTakesFromWhoHasMore) {
    for (uint32_t i = 0; i < state().slab_count; ++i) take_slab(0);
    ASSERT_EQ(slabs(0), state().slab_count);
    for (uint32_t i = 0; i < state().slab_count; ++i) {
        take_slab(1);
        ASSERT_EQ(check_invariants(state()), 0);
    }
    const uint64_t share = state().slab_count / 2;
    EXPECT_GE(slabs(1), share - 1);
    EXPECT_GE(slabs(0), share) << "no more than what is beyond the other's share";
    EXPECT_EQ(slabs(0) + slabs(1), state().slab_count);
    EXPECT_EQ(state().rings_in_use, 2u);
}

TEST_F(FrameRingTest, WhoHasGoneLeavesItsSlabs) {
    for (uint64_t index = 0; index < kPlaces; ++index) {
        for (uint32_t i = 0; i < state().slab_count / kPlaces; ++i) take_slab(index);
    }
    // Only one goes on: at first it has its share and no more, then all, as the others stand still
    // while the cache turns over.
    for (uint32_t i = 0; i < 12 * state().slab_count; ++i) take_slab(3);
    EXPECT_GE(slabs(3), state().slab_count / kPlaces);
    EXPECT_EQ(check_invariants(state()), 0);
    for (uint32_t i = 0; i < 12 * state().slab_count; ++i) {
        take_slab(3);
        take_slab(2);
    }
    EXPECT_GE(slabs(2) + 1, state().slab_count / kPlaces);
    EXPECT_EQ(check_invariants(state()), 0);
}

TEST_F(FrameRingTest, AFrameIsInTheRingOfItsTeamOnly) {
    take_slab(1);
    take_slab(2);
    EXPECT_TRUE(device::in_ring(state(), &place(1), 0));
    EXPECT_FALSE(device::in_ring(state(), &place(2), 0));
    EXPECT_TRUE(device::in_ring(state(), &place(2), state().slab_frames));
    EXPECT_FALSE(device::in_ring(state(), nullptr, 0));
}

TEST_F(FrameRingTest, WhatIsReadOnceKeepsToAFewFrames) {
    for (uint32_t i = 0; i < state().slab_count; ++i) take_slab(0);
    place(0).once = ReadOnce::kAdvised;
    std::set<FrameIndex> used;
    for (int i = 0; i < 3000; ++i) used.insert(next(0, 1).first);
    EXPECT_LE(used.size(), state().readahead.once_slabs * state().slab_frames);
    EXPECT_LE(used.size(), state().frame_count / 2);
    EXPECT_EQ(check_invariants(state()), 0);
}

// A team of the block sees the ring's first slab before the cursor is at it: seen on a GPU, where
// two warps begin a ring at once and both had frames 0 and 1, and pages went later whose frames the
// ring believed free.
TEST_F(FrameRingTest, NobodyBeginsASlabBeforeTheCursorIsAtIt) {
    for (const bool once : {false, true}) {
        ReadaheadPlace& begun = place(once ? 1 : 0);
        begun.once = once ? ReadOnce::kAdvised : ReadOnce::kNo;
        begun.ring_busy = 1;
        device::append_slab(state(), begun, once ? 5 : 0);
        begun.once_turn = once ? 1 : 0;
        EXPECT_EQ(device::ring_frames(state(), begun, 2, 1).count, 0u);
        device::unlock(begun.ring_busy);
    }
    // Nor where the ring has lost all that it had.
    const uint64_t lost = next(2, 1).first / state().slab_frames;
    place(2).ring_busy = 1;
    ASSERT_EQ(device::remove_oldest_slab(state(), place(2)), lost);
    EXPECT_EQ(device::ring_frames(state(), place(2), 2, 1).count, 0u);
    device::append_slab(state(), place(2), lost);
    EXPECT_EQ(device::ring_frames(state(), place(2), 2, 1).count, 0u);
    device::unlock(place(2).ring_busy);
}

TEST_F(FrameRingTest, OnlyAFullShareIsOutrun) {
    state().readahead.outrun_slabs = 1;
    std::fill_n(state().owners, state().frame_count, make_owner(0, 1));
    const uint64_t size = state().slab_frames;
    EXPECT_FALSE(device::outruns_ring(state(), place(0), 1000)) << "no ring";
    for (uint32_t i = 0; i < state().slab_count / 2; ++i) take_slab(0);
    EXPECT_FALSE(device::outruns_ring(state(), place(0), 1000)) << "there are fresh ones";
    for (uint32_t i = 0; i < state().slab_count - 1; ++i) take_slab(1);
    const uint64_t mine = slabs(0);
    ASSERT_GE(mine, state().slab_count / 2);
    EXPECT_TRUE(device::outruns_ring(state(), place(0), mine * size));
    EXPECT_FALSE(device::outruns_ring(state(), place(0), mine * size - 1)) << "it holds them all";
    std::fill_n(state().owners, state().frame_count, kFrameFree);
    EXPECT_FALSE(device::outruns_ring(state(), place(0), 1000)) << "its pages were dropped";
    std::fill_n(state().owners, state().frame_count, make_owner(0, 1));
    EXPECT_FALSE(device::outruns_ring(state(), place(2), 1000)) << "no ring";
    take_slab(2);
    EXPECT_FALSE(device::outruns_ring(state(), place(2), 1000)) << "less than a share";
    // Shares that do not come out even: each of three has one.
    for (uint32_t i = 0; i < 4 * state().slab_count; ++i) take_slab(i % 3);
    for (uint64_t index = 0; index < 3; ++index)
        EXPECT_TRUE(device::outruns_ring(state(), place(index), 1000)) << slabs(index);
    state().readahead.outrun_slabs = mine + 1;
    EXPECT_FALSE(device::outruns_ring(state(), place(0), 1000)) << "too short a ring";
}

// The last slab may be short: a ring that has no other hands out what it has.
TEST(FrameRingsTest, AShortSlabIsTakenWhole) {
    Memory memory({.frames = 250, .teams = 4, .permits = 4});
    FileSystemState& state = memory.state();
    const uint64_t last = state.slab_count - 1;
    const auto size = static_cast<uint32_t>(device::frames_of_slab(state, last));
    ASSERT_LT(size, state.slab_frames) << "choose another number of frames";
    ReadaheadPlace& place = state.places[0];
    state.fresh_hand = state.slab_count;
    state.slab_owners[last] = 1;
    place.ring_busy = 1;
    device::append_slab(state, place, last);
    place.cursor = device::cursor_at(last);
    device::unlock(place.ring_busy);
    const uint64_t turns = state.slab_hand;
    for (int i = 0; i < 3; ++i) {
        const device::FrameRange range = device::ring_frames(state, place, 64, size + 1);
        EXPECT_EQ(range.first, last * state.slab_frames);
        EXPECT_EQ(range.count, size);
    }
    EXPECT_LE(state.slab_hand, turns + 3) << "one turn a call";
}

// Without rings all look at the frames in turn.
TEST(OneHandTest, GoesRoundAndKeepsToTheEnd) {
    Memory memory({.frames = 10, .teams = 2, .policy = ReplacementPolicy::kGlobalLra});
    FileSystemState& state = memory.state();
    std::vector<uint32_t> firsts, counts;
    for (int i = 0; i < 6; ++i) {
        const device::FrameRange range = device::next_frames(state, &state.places[i % 2], 4, 1);
        firsts.push_back(range.first);
        counts.push_back(range.count);
    }
    EXPECT_EQ(firsts, (std::vector<uint32_t>{0, 4, 8, 2, 6, 0}));
    EXPECT_EQ(counts, (std::vector<uint32_t>{4, 4, 2, 4, 4, 4}));
}

TEST(FrameRingsTest, EveryOrderKeepsEachSlabInOneRing) {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        base::Prng prng(seed);
        const uint32_t places = static_cast<uint32_t>(1 + prng.below(6));
        Memory memory({.frames = 1 + places + prng.below(300), .teams = places, .permits = places});
        FileSystemState& state = memory.state();
        for (int i = 0; i < 500; ++i) {
            ReadaheadPlace& place = state.places[prng.below(1 + prng.below(places))];
            place.once = prng.below(10) == 0 ? ReadOnce::kAdvised : ReadOnce::kNo;
            const auto want = static_cast<uint32_t>(1 + prng.below(64));
            const device::FrameRange range = device::next_frames(
                state, &place, want, static_cast<uint32_t>(prng.below(want) + 1));
            ASSERT_LE(range.count, want);
            ASSERT_LE(range.first + range.count, state.frame_count) << "seed " << seed;
            ASSERT_EQ(check_invariants(state), 0) << "seed " << seed << ", step " << i;
        }
    }
}

}  // namespace
}  // namespace penstock::page_cache
