// Goal: what GPU threads do to one page (device/page_cache.cuh, truncate.cuh) where others were
// first or come behind, one step at a time.
#include <gtest/gtest.h>

#include <vector>

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

// A leaf may go from a file to another one that was cut as often: who saw the entry before must not
// find the same word there.
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
    const device::PinnedEntry given_on = device::pin_page(state, memory.file(1), 7);
    device::unpin<DeviceWords>(*given_on.entry);
    for (int cuts = 0; cuts < 3; ++cuts) {
        EXPECT_EQ(device::clear_page(state, memory.file(1), 7, 0), 0);
        for (const uint64_t word : words) EXPECT_NE(*given_on.entry, word);
        words.push_back(*given_on.entry);
    }
}

}  // namespace
}  // namespace penstock::service
