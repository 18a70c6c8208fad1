// Goal: a truncation, a close or a view that comes at the wrong time loses nothing that was
// written, brings nothing back that was given up, and leaves nothing in the cache's way. Each did,
// once.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "system/write_fixture.h"

namespace penstock::system_test {
namespace {

class WriteOrder : public WriteTest {
protected:
    // From the `first` on opens take their time, and so does the next write.
    static void slow_down(Machine& machine, uint64_t first) {
        machine.faults().inject(
            {.call = Call::kWrite, .action = Action::kDelay, .delay_ns = 1'000 * kMillisecond});
        machine.faults().inject({.call = Call::kOpen,
                                 .action = Action::kDelay,
                                 .first = first,
                                 .count = 100,
                                 .delay_ns = 150 * kMillisecond});
    }
    static int64_t at(uint64_t page) { return static_cast<int64_t>(page * kPage); }
    // Which pages of a file are not those of `bytes`.
    static std::string wrong_pages(Machine& machine, const std::string& name, const Bytes& bytes) {
        const Bytes now = bytes_of_file(machine.files().path(name));
        std::string wrong = now.size() < bytes.size() ? "too short" : "";
        for (uint64_t i = 0; i + kPage <= std::min(now.size(), bytes.size()); i += kPage) {
            if (!std::equal(bytes.begin() + at(i / kPage), bytes.begin() + at(i / kPage + 1),
                            now.begin() + at(i / kPage)))
                wrong += " " + std::to_string(i / kPage);
        }
        return wrong;
    }
};

TEST_P(WriteOrder, ALongerFileThatCannotBeHasTheSizeThatItHad) {
    Machine machine(shape_of(16));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 3 * kPage, 1);
    machine.faults().inject({.call = Call::kTruncate, .error = EIO});
    const auto done = machine.run_block({open_step(0, path_of(machine, "f"), kOpenReadWrite),
                                         cut_step(0, 5 * kPage), stat_step(0), close_step(0)});
    EXPECT_EQ(done[1].result, -EIO);
    EXPECT_EQ(done[2].result, int64_t{3 * kPage});
}

// A truncation waits for a page that is under way, and fails; others go on meanwhile.
class TruncationThatFails : public WriteOrder {
protected:
    TruncationThatFails() : machine_(side_by_side(64)) {}
    void SetUp() override {
        WriteOrder::SetUp();
        if (IsSkipped()) return;
        ASSERT_TRUE(machine_.ok());
        machine_.create_file("f", 10 * kPage, 1);
        machine_.create_file("g", kPage, 2);
        file_ = machine_.fs().open(machine_.files().path("f"), kOpenReadWrite).value();
        from_ = machine_.put(bytes_);
        (void)machine_.run_block({set_step(0, file_), write_step(0, 0, 10 * kPage, from_)});
        machine_.faults().inject({.call = Call::kTruncate, .error = EIO});
        slow_down(machine_, 1);
    }
    // The result of `step` on `file`, which comes last.
    int64_t beside(Descriptor file, const Step& step) {
        const char* other = path_of(machine_, "g");
        auto* out = machine_.scratch().array<std::byte>(kPage);
        std::vector<std::vector<Step>> blocks{
            {set_step(0, file_), map_step(0, 0, at(5), kPage, out), change_step(0, from_ + at(5)),
             unmap_step(0)},
            {open_step(1, other), set_step(0, file_), cut_step(0, 0), stat_step(0)},
            {open_step(1, other), open_step(2, other), open_step(3, other), set_step(0, file),
             step}};
        EXPECT_TRUE(machine_.run(&blocks).ok());
        EXPECT_EQ(blocks[1][2].result, -EIO);
        EXPECT_GE(blocks[1][3].result, int64_t{10 * kPage});
        return blocks[2][4].result;
    }
    Machine machine_;
    Descriptor file_ = -1;
    const Bytes bytes_ = storage::random_bytes(7, 10 * kPage);
    std::byte* from_ = nullptr;
};

TEST_P(TruncationThatFails, LosesNothingThatIsSyncedMeanwhile) {
    EXPECT_EQ(beside(file_, sync_step(0)), 0);
    EXPECT_TRUE(machine_.fs().close(file_).ok());
    EXPECT_EQ(wrong_pages(machine_, "f", bytes_), "");
}

TEST_P(TruncationThatFails, LeavesAppendsBehindAll) {
    const Bytes line = storage::random_bytes(9, 200);
    const auto behind = machine_.fs().open(machine_.files().path("f"),
                                           kOpenReadWrite | kOpenAppend);
    ASSERT_TRUE(behind.ok());
    EXPECT_EQ(beside(behind.value(), write_step(0, 0, line.size(), machine_.put(line))), 200);
    EXPECT_TRUE(machine_.fs().close(file_).ok());
    EXPECT_TRUE(machine_.fs().close(behind.value()).ok());
    Bytes all = bytes_;
    all.insert(all.end(), line.begin(), line.end());
    EXPECT_TRUE(bytes_of_file(machine_.files().path("f")) == all);
}

// One that needed room has a page of the scratch file under way when that is closed.
TEST_P(WriteOrder, AScratchFileIsNotWrittenOverWhoOpensItNext) {
    Machine machine(side_by_side(16));
    ASSERT_TRUE(machine.ok());
    constexpr uint64_t kPages = 7;
    machine.create_file("f", kPages * kPage, 1);
    machine.create_file("g", kPage, 2);
    const char *path = path_of(machine, "f"), *other = path_of(machine, "g");
    const Bytes bytes = storage::random_bytes(8, kPages * kPage);
    std::byte* first = machine.put(storage::random_bytes(7, kPages * kPage));
    std::byte* second = machine.put(bytes);
    auto* closed = reinterpret_cast<std::byte*>(machine.scratch().array<uint64_t>(1));
    std::vector<Step> scratch{open_step(0, path, kOpenReadWrite | kOpenNoSync)};
    for (uint64_t page = 0; page < kPages; ++page)
        scratch.push_back(write_step(0, at(page), kPage, first + at(page)));
    scratch.push_back(close_step(0));
    scratch.push_back({.act = Act::kShare, .file = 0, .out = closed});
    slow_down(machine, 2);
    std::vector<std::vector<Step>> blocks{scratch,
                                          {open_step(1, other),
                                           open_step(2, other),
                                           {.act = Act::kLoop, .out = closed},
                                           open_step(0, path, kOpenReadWrite),
                                           write_step(0, 0, kPages * kPage, second),
                                           close_step(0)}};
    ASSERT_TRUE(machine.run(&blocks).ok());
    for (const Step& step : blocks[1]) EXPECT_GE(step.result, 0);
    EXPECT_EQ(wrong_pages(machine, "f", bytes), "");
}

TEST_P(WriteOrder, AViewThatIsLetGoBehindTheLastCloseIsInNobodysWay) {
    Machine machine(shape_of(16));
    ASSERT_TRUE(machine.ok());
    const uint64_t views = machine.frame_count() + 8;
    machine.create_file("f", views * kPage, 1);
    machine.create_file("g", 64 * kPage, 2);
    const char* path = path_of(machine, "f");
    auto* out = machine.scratch().array<std::byte>(kPage);
    for (uint64_t i = 0; i < views; ++i) {
        const auto done = machine.run_block({open_step(0, path, kOpenReadWrite),
                                             map_step(0, 0, at(i), kPage, out), close_step(0),
                                             unmap_step(0)});
        ASSERT_EQ(done[1].result, int64_t{kPage}) << i;
        ASSERT_EQ(done[3].result, -EBADF) << i;
        if (on_gpu() && i == 20) break;  // not all of its thousands of frames
    }
    EXPECT_EQ(machine.dirty_pages(), 0u);
    EXPECT_EQ(machine.held_pins(), 0u);
    const auto other = machine.fs().open(machine.files().path("g"));
    ASSERT_TRUE(other.ok()) << other.status().message();
    const auto done = machine.run_block({set_step(0, other.value()), read_step(0, 0, kPage, out),
                                         read_step(0, at(9), kPage, out), close_step(0)});
    EXPECT_EQ(done[1].result, int64_t{kPage});
    EXPECT_EQ(done[2].result, int64_t{kPage});
}

TEST_P(WriteOrder, AnOpenThatFailsHasNotEmptiedTheFile) {
    Machine machine(shape_of(16));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 3 * kPage, 1);
    machine.create_file("big", 0, 1);
    const std::string path = machine.files().path("f"), big = machine.files().path("big");
    const uint64_t words = machine.service().host_state()->directory_size;
    ASSERT_EQ(::truncate(big.c_str(), at(words * limits::kLeafEntries)), 0);
    const auto held = machine.fs().open(big);
    ASSERT_TRUE(held.ok()) << held.status().message();
    const auto opened = machine.fs().open(path, kOpenReadWrite | kOpenTruncate);
    EXPECT_EQ(opened.status().error_number(), ENFILE);
    EXPECT_EQ(bytes_of_file(path).size(), 3 * kPage);
    EXPECT_TRUE(machine.fs().close(held.value()).ok());
    const auto again = machine.fs().open(path, kOpenReadWrite | kOpenTruncate);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(machine.fs().size(again.value()).value(), 0u);
    EXPECT_TRUE(machine.fs().close(again.value()).ok());
    EXPECT_EQ(bytes_of_file(path).size(), 0u);
}

TEST_P(WriteOrder, AWriteThatNeedsNoReadingIsNotToldOfAnothersRead) {
    Machine machine(side_by_side(64));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 4 * kPage, 1);
    machine.create_file("g", kPage, 2);
    const char *path = path_of(machine, "f"), *other = path_of(machine, "g");
    const Descriptor file = machine.fs().open(path, kOpenReadWrite).value();
    const Bytes bytes = storage::random_bytes(7, 4 * kPage);
    std::byte* from = machine.put(bytes);
    auto* out = machine.scratch().array<std::byte>(kPage);
    machine.faults().inject({.call = Call::kRead, .error = EIO, .delay_ns = 500 * kMillisecond});
    slow_down(machine, 1);
    std::vector<std::vector<Step>> blocks{
        {set_step(0, file), read_step(0, at(1), kPage, out)},
        {open_step(1, other), set_step(0, file), write_step(0, 0, 4 * kPage, from)}};
    ASSERT_TRUE(machine.run(&blocks).ok());
    const int64_t read = blocks[0][1].result;  // or it saw the page when it was filled again
    EXPECT_TRUE(read == -EIO || read == int64_t{kPage}) << read;
    EXPECT_EQ(blocks[1][2].result, int64_t{4 * kPage});
    EXPECT_TRUE(machine.fs().close(file).ok());
    EXPECT_EQ(wrong_pages(machine, "f", bytes), "");
}

// What nobody has said was stored is in no file: nobody is to read it either.
TEST_P(WriteOrder, WhatWasStoredThroughALostViewIsNotRead) {
    if (GetParam()) GTEST_SKIP() << "the host stores for the kernel";
    Machine machine(shape_of(16));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 3 * kPage, 1);
    usleep(50'000);  // or the file's times would have its pages dropped
    const char* path = path_of(machine, "f");
    auto* out = machine.scratch().array<std::byte>(kPage);
    (void)machine.run_block({open_step(0, path, kOpenReadWrite), map_step(0, 0, 0, kPage, out)});
    FileSystemState* state = machine.service().host_state();
    for (uint64_t i = 0; i < state->frame_count; ++i) {
        std::byte* frame = state->frames + i * kPage;
        if (std::equal(out, out + kPage, frame)) std::fill_n(frame, 100, std::byte{0x5a});
    }
    const auto left = machine.fs().reclaim();
    ASSERT_TRUE(left.ok());
    EXPECT_EQ(left.value().views, 1u);
    const Bytes now = bytes_of_file(machine.files().path("f"));
    (void)machine.run_block({open_step(0, path), read_step(0, 0, kPage, out), close_step(0)});
    EXPECT_TRUE(std::equal(out, out + kPage, now.begin()));
}

INSTANTIATE_TEST_SUITE_P(Devices, TruncationThatFails, ::testing::Bool(), name_of_device);
INSTANTIATE_TEST_SUITE_P(Devices, WriteOrder, ::testing::Bool(), name_of_device);

}  // namespace
}  // namespace penstock::system_test
