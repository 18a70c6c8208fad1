// Goal: the page table and CLOCK do what they say, one step at a time; and the check of the
// invariants finds each of them broken.
#include "penstock/device/page_table.cuh"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "page_cache/page_cache_fixture.h"

namespace penstock::page_cache {
namespace {

using device::DeviceWords;

TEST(PageTableTest, APageIsFoundAgainUnderItsEntry) {
    Memory memory({.frames = 8});
    memory.place_file(3, 10, 4);
    memory.place_file(4, 14, 1);
    PageEntry* first = memory.fill_page(3, 511);
    PageEntry* next_leaf = memory.fill_page(3, 512);
    PageEntry* other_file = memory.fill_page(4, 511);
    EXPECT_NE(first, next_leaf);
    EXPECT_NE(first, other_file);
    const device::PinnedEntry again = device::pin_page(memory.state(), memory.file(3), 511);
    EXPECT_EQ(again.entry, first);
    EXPECT_EQ(state_of(again.seen), PageState::kValid);
    EXPECT_EQ(pins_of(again.seen), 1u);
    EXPECT_EQ(check_invariants(memory.state()), 4) << "a pin that is no view";
    device::unpin<DeviceWords>(*first);
    EXPECT_EQ(check_invariants(memory.state()), 0);
}

TEST(PageTableTest, LeavesAreGivenToOtherPages) {
    Memory memory({.frames = 4, .leaves = 3});
    memory.place_file(0, 0, 100);
    for (uint64_t round = 0; round < 3; ++round) {
        for (uint64_t word = 0; word < 100; ++word) {
            ASSERT_NE(memory.fill_page(0, word * limits::kLeafEntries + word), nullptr) << word;
            ASSERT_EQ(check_invariants(memory.state()), 0) << word;
        }
    }
    // A held page keeps its leaf; when all leaves are kept there is none to be had.
    std::vector<device::PinnedEntry> held;
    for (uint64_t word = 0; word < 3; ++word) {
        ASSERT_NE(memory.fill_page(0, word * limits::kLeafEntries), nullptr);
        held.push_back(
            device::pin_page(memory.state(), memory.file(0), word * limits::kLeafEntries));
    }
    EXPECT_EQ(device::pin_page(memory.state(), memory.file(0), 50 * limits::kLeafEntries).entry,
              nullptr);
    device::unpin<DeviceWords>(*held[1].entry);
    EXPECT_NE(memory.fill_page(0, 50 * limits::kLeafEntries), nullptr);
}

TEST(PageTableTest, NoLeafIsTakenFromPagesWhileThereAreFreeOnes) {
    Memory memory({.frames = 8, .leaves = 4});
    memory.place_file(0, 0, 8);
    FileSystemState& state = memory.state();
    PageEntry* const first = memory.fill_page(0, 0);
    EXPECT_EQ(state.leaves_in_use, 1u);
    for (uint64_t word = 1; word < 4; ++word) {
        state.leaf_hand = 4;  // at that of the first page
        const PageIndex page = word * limits::kLeafEntries;
        const device::PinnedEntry pinned = device::pin_page(state, memory.file(0), page);
        ASSERT_NE(pinned.entry, nullptr) << word;
        device::unpin<DeviceWords>(*pinned.entry);
        EXPECT_EQ(state_of(*first), PageState::kValid) << word;
        EXPECT_EQ(state.leaves_in_use, word + 1);
    }
    EXPECT_EQ(check_invariants(state), 0);
    device::install_leaves(state, memory.file(0), 5 * limits::kLeafEntries - 1, 2);
    EXPECT_NE(state.directory[4], 0u) << "of the first of the two";
    EXPECT_NE(state.directory[5], 0u) << "and of the last";
    EXPECT_EQ(state.leaves_in_use, 4u);
    EXPECT_EQ(check_invariants(state), 0);
    EXPECT_TRUE(drop_file(state, 0));
    EXPECT_EQ(state.leaves_in_use, 0u);
}

TEST(PageTableTest, ALeafThatStaysKeepsItsPages) {
    Memory memory({.frames = 8, .leaves = 2});
    memory.place_file(0, 0, 8);
    FileSystemState& state = memory.state();
    PageEntry* const beside = memory.fill_page(0, 3);
    const device::PinnedEntry held = device::pin_page(state, memory.file(0), 400);
    PageEntry* const used = memory.fill_page(0, limits::kLeafEntries);
    PageEntry* const last = memory.fill_page(0, 2 * limits::kLeafEntries - 1);
    DeviceWords::fetch_or(*last, kTouchedBit, site::kRelaxed);
    EXPECT_FALSE(device::empty_leaf(state, state.directory[1] - 1, true)) << "a second chance";
    EXPECT_EQ(state_of(*used), PageState::kValid);
    EXPECT_EQ(*last & kTouchedBit, 0u) << "its last one";
    DeviceWords::fetch_or(*beside, kTouchedBit, site::kRelaxed);
    EXPECT_FALSE(device::empty_leaf(state, state.directory[0] - 1, true)) << "somebody holds it";
    EXPECT_NE(*beside & kTouchedBit, 0u) << "nobody asked whether it could go";
    EXPECT_FALSE(device::empty_leaf(state, state.directory[0] - 1, false)) << "somebody holds it";
    EXPECT_EQ(state_of(*beside), PageState::kValid);
    // What may go goes.
    const device::PinnedEntry other = device::pin_page(state, memory.file(0),
                                                       5 * limits::kLeafEntries);
    ASSERT_NE(other.entry, nullptr);
    EXPECT_EQ(state.directory[1], 0u);
    EXPECT_EQ(state_of(*beside), PageState::kValid);
    device::unpin<DeviceWords>(*other.entry);
    device::unpin<DeviceWords>(*held.entry);
    EXPECT_EQ(check_invariants(state), 0);
}

// As a miss does: it draws the hand's place, then looks from there on.
bool take(FileSystemState& state, FrameIndex& frame) {
    const uint64_t hand = state.clock_hand++;
    return device::take_frame(state, hand, frame);
}

TEST(ReplacementTest, FreeFramesThenThoseNotTouched) {
    Memory memory({.frames = 4});
    memory.place_file(0, 0, 4);
    FileSystemState& state = memory.state();
    PageEntry* entries[4];
    for (PageIndex page = 0; page < 4; ++page) entries[page] = memory.fill_page(0, page);
    DeviceWords::fetch_or(*entries[0], kTouchedBit, site::kRelaxed);
    DeviceWords::fetch_or(*entries[1], kTouchedBit, site::kRelaxed);
    device::pin<DeviceWords>(*entries[2]);
    state.clock_hand = 0;
    FrameIndex frame = 9;
    // 0 and 1 get a second chance, 2 is held.
    ASSERT_TRUE(take(state, frame));
    EXPECT_EQ(frame, 3u);
    EXPECT_EQ(state_of(*entries[3]), PageState::kEmpty);
    EXPECT_EQ(*entries[0] & kTouchedBit, 0u);
    ASSERT_TRUE(take(state, frame));
    EXPECT_EQ(frame, 0u) << "its second chance is over";
    ASSERT_TRUE(take(state, frame));
    EXPECT_EQ(frame, 1u);
    EXPECT_FALSE(take(state, frame)) << "what is left is held, or in our hands";
    device::give_frame_back(state, 3);
    ASSERT_TRUE(take(state, frame));
    EXPECT_EQ(frame, 3u);
}

TEST(ReplacementTest, PagesBeingFetchedAreLeftAloneUntilTheyArrive) {
    Memory memory({.frames = 1});
    memory.place_file(0, 0, 1);
    FileSystemState& state = memory.state();
    device::PinnedEntry page = device::pin_page(state, memory.file(0), 5);
    FrameIndex frame = 0;
    ASSERT_TRUE(device::take_frame(state, 0, frame));
    ASSERT_TRUE(device::claim<DeviceWords>(*page.entry, page.seen, frame, 1));
    state.owners[frame] = make_owner(0, 5);
    device::unpin<DeviceWords>(*page.entry);  // abandoned
    EXPECT_FALSE(device::take_frame(state, 0, frame));
    EXPECT_FALSE(drop_file(state, 0));
    state.completions[0] = make_completion(1, 5, 0);  // it failed, with EIO
    ASSERT_TRUE(device::take_frame(state, 0, frame))
        << "whoever comes by publishes it, then evicts it";
    EXPECT_EQ(*page.entry, make_entry(PageState::kEmpty, 0, 1, 0));
}

TEST(InvalidationTest, DropsAFileButForHeldPages) {
    Memory memory({.frames = 16});
    memory.place_file(0, 0, 8);
    memory.place_file(1, 8, 8);
    FileSystemState& state = memory.state();
    for (PageIndex page = 0; page < 5; ++page) {
        ASSERT_NE(memory.fill_page(0, page * 700), nullptr);
        ASSERT_NE(memory.fill_page(1, page * 700), nullptr);
    }
    device::PinnedEntry view = device::pin_page(state, memory.file(0), 1400);
    state.held_pins = 1;
    EXPECT_FALSE(drop_file(state, 0));
    EXPECT_EQ(check_invariants(state), 0);
    EXPECT_EQ(drop_held(state), 0u) << "a view, no call";
    EXPECT_EQ(state.held_pins, 0u);
    EXPECT_EQ(pins_of(*view.entry), 0u);
    EXPECT_TRUE(drop_file(state, 0));
    EXPECT_EQ(check_invariants(state), 0);
    for (uint64_t word = 0; word < 8; ++word) EXPECT_EQ(state.directory[word], 0u);
    uint32_t free = 0;
    for (uint32_t frame = 0; frame < 16; ++frame) free += state.owners[frame] == kFrameFree;
    EXPECT_EQ(free, 11u) << "the other file keeps its five";
}

TEST(InvalidationTest, EachBrokenInvariantIsFound) {
    const auto broken = [](auto breaks) {
        Memory memory({.frames = 8});
        memory.place_file(0, 0, 4);
        PageEntry* entry = memory.fill_page(0, 0);
        memory.fill_page(0, 1);
        EXPECT_EQ(check_invariants(memory.state()), 0);
        breaks(memory.state(), entry);
        return check_invariants(memory.state());
    };
    using State = FileSystemState;
    EXPECT_EQ(broken([](State& state, PageEntry* entry) {
                  state.owners[frame_of(*entry)] = make_owner(0, 7);
              }),
              1);
    EXPECT_EQ(
        broken([](State& state, PageEntry* entry) { state.owners[frame_of(*entry)] = kFrameFree; }),
        1);
    EXPECT_EQ(broken([](State& state, PageEntry*) { state.directory[0] = 0; }), 3);
    EXPECT_EQ(broken([](State&, PageEntry* entry) {
                  *entry = static_cast<uint64_t>(PageState::kRetired);
              }),
              3);
    EXPECT_EQ(broken([](State& state, PageEntry*) { ++state.leaves_in_use; }), 3);
    EXPECT_EQ(broken([](State& state, PageEntry*) { ++state.held_pins; }), 4);
    EXPECT_EQ(broken([](State& state, PageEntry*) { state.owners[7] = kFrameTaken; }), 5)
        << "a frame that no window has";
    EXPECT_EQ(broken([](State& state, PageEntry*) { state.owners[7] = make_owner(0, 9); }), 5);
    const auto window = [](State& state, uint64_t frame) {
        ReadStream& stream = state.places[0].streams[1];
        stream.windows = windows_of(state, 0, 1);
        stream.windows_max = state.readahead.windows_max;
        Window& made = stream.windows[stream.window_count++];
        made = {.first = 5,
                .step = 1,
                .run = 1,
                .count = 2,
                .frame = frame,
                .generation = 1,
                .stamp = 0,
                .left = 3};
        state.owners[frame] = state.owners[frame + 1] = kFrameTaken;
        state.window_frames += 2;
    };
    EXPECT_EQ(broken([&](State& state, PageEntry*) { window(state, 5); }), 0);
    EXPECT_EQ(broken([&](State& state, PageEntry*) { window(state, 5), window(state, 6); }), 5)
        << "a frame in two windows";
    EXPECT_EQ(broken([&](State& state, PageEntry*) {
                  window(state, 5);
                  state.owners[6] = kFrameFree;
              }),
              5);
    EXPECT_EQ(broken([&](State& state, PageEntry*) {
                  window(state, 5);
                  --state.window_frames;
              }),
              6);
    EXPECT_EQ(broken([&](State& state, PageEntry*) {
                  window(state, 5);
                  state.places[0].streams[1].windows[0].left |= 4;
              }),
              6);
    EXPECT_EQ(broken([](State& state, PageEntry*) { state.slab_owners[1] = 1; }), 7);
    EXPECT_EQ(broken([](State& state, PageEntry*) { state.rings_in_use = 1; }), 7);
    EXPECT_EQ(broken([](State& state, PageEntry*) { state.places[0].busy = 1; }), 8);
}

// Readers pin and look while the table gives their leaves and frames to others. Whoever saw VALID
// with a pin must find the frame with the page's mark in it.
TEST(PageTableTest, WhoHoldsAPinKeepsThePage) {
    Memory memory({.frames = 6, .teams = 4, .leaves = 4});
    memory.place_file(0, 0, 16);
    FileSystemState& state = memory.state();
    std::atomic<int> wrong{0}, seen_valid{0};
    const auto read = [&](uint64_t seed) {
        for (uint64_t i = 0; i < 4000; ++i) {
            const PageIndex page = (seed * 7919 + i * 31) % 16 * limits::kLeafEntries + i % 2;
            device::PinnedEntry pinned = device::pin_page(state, memory.file(0), page);
            if (pinned.entry == nullptr) continue;
            pinned.seen = device::publish_if_complete(state, *pinned.entry, pinned.seen);
            FrameIndex frame = 0;
            if (state_of(pinned.seen) == PageState::kEmpty && device::take_frame(state, i, frame)) {
                const uint32_t generation = device::next_generation(state, frame);
                if (device::claim<DeviceWords>(*pinned.entry, pinned.seen, frame, generation)) {
                    DeviceWords::store(state.owners[frame], make_owner(0, page), site::kRelaxed);
                    *reinterpret_cast<uint64_t*>(state.frames + frame * 4096) = page;
                    device::SystemWords::store(state.completions[frame],
                                               make_completion(generation, 0, 4096),
                                               site::kComplete);
                    pinned.seen = device::publish_if_complete(state, *pinned.entry, pinned.seen);
                } else {
                    device::give_frame_back(state, frame);
                }
            }
            if (state_of(pinned.seen) == PageState::kValid) {
                ++seen_valid;
                wrong += *reinterpret_cast<uint64_t*>(state.frames +
                                                      frame_of(pinned.seen) * 4096) != page;
            }
            device::unpin<DeviceWords>(*pinned.entry);
        }
    };
    std::vector<std::thread> threads;
    for (uint64_t seed = 1; seed <= 3; ++seed) threads.emplace_back(read, seed);
    threads.emplace_back([&] {
        for (int i = 0; i < 300; ++i) (void)drop_file(state, 0);
    });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_GT(seen_valid, 1000);
    EXPECT_EQ(check_invariants(state), 0);
}

}  // namespace
}  // namespace penstock::page_cache
