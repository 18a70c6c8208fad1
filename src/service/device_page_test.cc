// Goal: what GPU threads do to one page (device/page_cache.cuh, truncate.cuh) where others were
// first or come behind, one step at a time.
#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "backend/cpu/test_device.h"
#include "page_cache/page_cache_fixture.h"
#include "penstock/device/truncate.cuh"

namespace penstock::service {
namespace {

using device::DeviceWords;
using page_cache::Memory;

TEST(DevicePageTest, NoPageIsEvictedForOneThatAnotherHasBrought) {
    Memory memory({.frames = 2});
    memory.place_file(0, 0, 1);
    FileSystemState& state = memory.state();
    device::PinnedEntry page = device::pin_page(state, memory.file(0), 7);
    ASSERT_EQ(state_of(page.seen), PageState::kEmpty);
    PageEntry* const other = memory.fill_page(0, 8);
    ASSERT_EQ(memory.fill_page(0, 7), page.entry);
    bool need_frame = true;
    EXPECT_FALSE(device::claim_page(state, page, make_owner(0, 7), frame_of(*other), need_frame));
    EXPECT_FALSE(need_frame);
    EXPECT_EQ(state_of(page.seen), PageState::kValid);
    EXPECT_EQ(state_of(*other), PageState::kValid);
    device::unpin<DeviceWords>(*page.entry);
    EXPECT_EQ(page_cache::check_invariants(state), 0);
}

// A leaf may go from a file to another one that was cut as often. A thread that saw the entry
// before must not find the same word there.
TEST(DevicePageTest, EachCutMakesTheEntryAnotherWord) {
    Memory memory({.frames = 2});
    memory.place_file(0, 0, 1);
    memory.place_file(1, 1, 1);
    FileSystemState& state = memory.state();
    const device::PinnedEntry page = device::pin_page(state, memory.file(0), 7);
    device::unpin<DeviceWords>(*page.entry);
    std::vector<uint64_t> words{*page.entry};
    for (int cuts = 0; cuts < 4; ++cuts) {
        EXPECT_EQ(device::clear_page(state, memory.file(cuts % 2), 7, 0), 0);
        if (cuts % 2 == 1) continue;  // of the other file
        EXPECT_EQ(state_of(*page.entry), PageState::kEmpty);
        words.push_back(*page.entry);
    }
    EXPECT_TRUE(page_cache::drop_file(state, 0));
    state.leaf_hand = 0;
    const device::PinnedEntry given_on = device::pin_page(state, memory.file(1), 7);
    ASSERT_EQ(given_on.entry, page.entry);
    device::unpin<DeviceWords>(*given_on.entry);
    for (int cuts = 0; cuts < 3; ++cuts) {
        EXPECT_EQ(device::clear_page(state, memory.file(1), 7, 0), 0);
        for (const uint64_t word : words) EXPECT_NE(*given_on.entry, word);
        words.push_back(*given_on.entry);
    }
}

// Of a ticket whose answer does not come, then of a page; what it was told.
__global__ void pull_in_vain(FileSystemState* state, uint64_t ticket, PageEntry* entry,
                             int* results) {
    results[0] = device::wait_for_answer(*state, state->rings[0], ticket, 0, 5) == 0 ? 0 : 1;
    uint64_t seen = 0;
    results[1] = device::wait_for_page(*state, *entry, seen);
}

// A GPU thread that has waited for its host too long takes no answer that comes after all: so no
// other waits for the page either, even when the host goes on.
TEST(PullTest, WhoGivesAnAnswerUpEndsAllWaits) {
    Memory memory({.frames = 2});
    memory.place_file(0, 0, 1);
    FileSystemState& state = memory.state();
    std::vector<uint64_t> answers(size_t{1} << state.rings[0].shift);
    state.rings[0].answers = answers.data();
    state.host->heartbeat = 1;  // for ever
    device::PinnedEntry page = device::pin_page(state, memory.file(0), 7);
    ASSERT_TRUE(device::claim<DeviceWords>(*page.entry, page.seen, 0, 5));
    int results[] = {7, 7};
    backend::cpu::TestDevice device;
    ASSERT_TRUE(device
                    .run({{1}, {1}, 0}, pull_in_vain, &state, 1ull << state.rings[0].shift,
                         page.entry, results)
                    .ok());
    EXPECT_EQ(results[0], 0) << "no answer";
    EXPECT_EQ(state.host->abort, uint64_t{EOWNERDEAD});
    EXPECT_EQ(results[1], -EOWNERDEAD);
}

}  // namespace
PENSTOCK_KERNEL(pull_in_vain)
}  // namespace penstock::service
