// Goal: a team that holds no handle finds a record for one, also where the device has more teams
// than there are records for all; and a record is one call's at a time.
#include <gtest/gtest.h>

#include <set>

#include "page_cache/page_cache_fixture.h"
#include "penstock/device/file.cuh"

namespace penstock::service {
namespace {

std::set<AsyncCall*> take_all(FileSystemState& state, unsigned place, size_t tries) {
    std::set<AsyncCall*> taken;
    for (size_t i = 0; i < tries; ++i) {
        AsyncCall* call = device::take_async_call(state, place);
        if (call == nullptr) continue;
        EXPECT_TRUE(taken.insert(call).second) << "a record that is taken";
    }
    return taken;
}

TEST(AsyncRecords, ATeamHasItsOwn) {
    page_cache::Memory memory({.frames = 64, .teams = 3});
    FileSystemState& state = memory.state();
    ASSERT_EQ(state.async_count, 3 * limits::kAsyncCallsMax);
    std::set<AsyncCall*> all;
    for (unsigned place = 0; place < 3; ++place) {
        const auto taken = take_all(state, place, limits::kAsyncCallsMax + 2);
        EXPECT_EQ(taken.size(), limits::kAsyncCallsMax);
        all.insert(taken.begin(), taken.end());
    }
    EXPECT_EQ(all.size(), state.async_count);
}

TEST(AsyncRecords, WhereTwoTeamsHaveTheSameAnyOtherWillDo) {
    page_cache::Memory memory({.frames = 64, .teams = 4});
    FileSystemState& state = memory.state();
    state.async_count = 3 * limits::kAsyncCallsMax;  // places 0 and 3 begin at the same
    EXPECT_EQ(take_all(state, 0, limits::kAsyncCallsMax).size(), limits::kAsyncCallsMax);
    auto others = take_all(state, 3, limits::kAsyncCallsMax);
    EXPECT_EQ(others.size(), limits::kAsyncCallsMax);
    EXPECT_EQ(take_all(state, 2, 100).size(), limits::kAsyncCallsMax) << "what was left";
    EXPECT_EQ(device::take_async_call(state, 0), nullptr);
    device::give_async_call_back(**others.begin());
    EXPECT_EQ(device::take_async_call(state, 1), *others.begin());
}

}  // namespace
}  // namespace penstock::service
