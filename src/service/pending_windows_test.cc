// Goal: runs that are left to storage keep their requests, pieces and source until they are
// released; no more than kWindowsMax windows are left at a time, in any order of their ends.
#include "service/pending_windows.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "storage/ram.h"

namespace penstock::service {
namespace {

std::shared_ptr<transfer::Source> make_source() {
    storage::RamStorage storage;
    EXPECT_TRUE(storage.create("file", 4096).ok());
    return std::make_shared<transfer::Source>(storage.open("file", 0).value());
}

TEST(PendingWindows, ARunKeepsWhatItNeedsUntilItIsReleased) {
    PendingWindows windows;
    std::shared_ptr<transfer::Source> source = make_source();
    std::vector<Request> requests(3);
    for (size_t i = 0; i < 3; ++i) requests[i].page = 8 * i;
    std::vector<iovec> pieces(3);
    ReadRun* run = windows.add(
        {.requests = requests, .pieces = pieces, .first = {requests.data(), 0, 0}, .pages = 24},
        source);
    ASSERT_NE(run, nullptr);
    EXPECT_TRUE(run->pending);
    requests.assign(3, {});
    EXPECT_EQ(run->requests[2].page, 16u);
    EXPECT_EQ(run->first.request, run->requests.data());
    EXPECT_EQ(run->pieces.size(), 3u);
    EXPECT_FALSE(windows.has_hot());
    run->hot = true;
    EXPECT_TRUE(windows.has_hot());
    windows.end(*run);
    EXPECT_FALSE(windows.has_hot());
    EXPECT_FALSE(windows.empty());
    EXPECT_EQ(source.use_count(), 2);
    windows.release_ended();
    EXPECT_TRUE(windows.empty());
    EXPECT_EQ(source.use_count(), 1);
}

TEST(PendingWindows, RoomIsCountedInWindows) {
    PendingWindows windows;
    std::vector<Request> requests(limits::kDrainMax);
    std::vector<iovec> pieces(limits::kDrainMax);
    const auto add = [&](size_t count) {
        return windows.add({.requests = {requests.data(), count}, .pieces = {pieces.data(), count}},
                           nullptr);
    };
    std::vector<const ReadRun*> runs;
    for (size_t i = 0; i < PendingWindows::kWindowsMax / 2; ++i) runs.push_back(add(2));
    EXPECT_EQ(add(1), nullptr);
    for (const size_t i : {5, 30, 0}) windows.end(*runs[i]);
    EXPECT_EQ(add(1), nullptr) << "the requests of ended runs are still used";
    windows.release_ended();
    EXPECT_EQ(add(7), nullptr);
    for (int i = 0; i < 6; ++i) EXPECT_NE(add(1), nullptr);
    EXPECT_EQ(add(1), nullptr);
}

}  // namespace
}  // namespace penstock::service
