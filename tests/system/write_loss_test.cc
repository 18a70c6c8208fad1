// Goal: what was written is in the file, and what was not, or was cut off, is nowhere, also where
// reads, writes or truncations of storage fail, where others open, cut, map and close the file at
// the same time, and where nobody closes it. Each was lost, or came back, once.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "system/write_fixture.h"

namespace penstock::system_test {
namespace {

class WriteLoss : public WriteTest {
protected:
    // That no later time of change is within the file system's clock ticks.
    static void let_times_pass() { usleep(50'000); }
};

TEST_P(WriteLoss, AReadErrorOfAFileThatGrewIsNoZeros) {
    Machine machine(shape_of(16), 16 << 20, 6);
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 0, 1);
    const uint64_t size = 3 * machine.frame_count() * kPage;
    std::byte* from = machine.put(storage::random_bytes(5, size));
    auto* out = machine.scratch().array<std::byte>(size);
    machine.faults().inject({.call = Call::kRead, .count = UINT64_MAX, .error = EIO});
    const auto done = machine.run_block({open_step(0, path_of(machine, "f"), kOpenReadWrite),
                                         write_step(0, 0, size, from), sync_step(0),
                                         read_step(0, 0, size, out)});
    EXPECT_EQ(done[2].result, 0);
    EXPECT_EQ(done[3].result, -EIO);
}

// A window was read before the cut, and another opens the file behind it.
TEST_P(WriteLoss, WhatWasCutOffDoesNotComeBackOutOfWindows) {
    for (const bool again : {false, true}) {
        Machine machine(shape_of(128));
        ASSERT_TRUE(machine.ok());
        constexpr uint64_t kPages = 64, kSize = kPages * kPage;
        machine.create_file("f", kSize, 1);
        const char* path = path_of(machine, "f");
        auto* out = machine.scratch().array<std::byte>(kSize);
        std::vector<Step> steps{open_step(0, path, kOpenReadWrite)};
        const auto read = [&](uint64_t page) {
            steps.push_back(
                read_step(0, static_cast<int64_t>(page * kPage), kPage, out + page * kPage));
        };
        for (uint64_t page = 0; page < 6; ++page) read(page);
        steps.push_back(cut_step(0, kPage));
        steps.push_back(cut_step(0, kSize));
        if (again) steps.push_back(open_step(1, path, kOpenReadWrite));
        for (uint64_t page = 6; page < kPages; ++page) read(page);
        (void)machine.run_block(steps);
        EXPECT_TRUE(std::all_of(out + 6 * kPage, out + kSize, [](std::byte byte) {
            return byte == std::byte{0};
        })) << (again ? "opened again" : "not opened again");
        EXPECT_GT(machine.fs().statistics().pages.prefetched, 0u) << "or the test shows nothing";
    }
}

TEST_P(WriteLoss, AWriteThatFailsLeavesNoBytesThatTheFileHasNot) {
    Machine machine(shape_of(16));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 6 * kPage, 1);
    const Bytes before = bytes_of_file(machine.files().path("f"));
    std::byte* from = machine.put(storage::random_bytes(2, 3 * kPage));
    auto* out = machine.scratch().array<std::byte>(6 * kPage);
    machine.faults().inject({.call = Call::kRead, .first = 2, .error = EIO});
    const auto done = machine.run_block({open_step(0, path_of(machine, "f"), kOpenReadWrite),
                                         write_step(0, 100, 3 * kPage, from),
                                         read_step(0, 0, 6 * kPage, out), close_step(0)});
    EXPECT_EQ(done[1].result, -EIO);
    EXPECT_EQ(done[3].result, 0);
    const Bytes after = bytes_of_file(machine.files().path("f"));
    EXPECT_TRUE(std::equal(after.begin(), after.end(), out)) << "what was read is in the file";
    EXPECT_TRUE(std::equal(after.begin(), after.begin() + kPage, before.begin()));
}

TEST_P(WriteLoss, ATruncationThatFailsLosesNothing) {
    for (const uint64_t cut : {uint64_t{0}, uint64_t{100}, 2 * kPage, 2 * kPage + 64}) {
        Machine machine(shape_of(16));
        ASSERT_TRUE(machine.ok());
        machine.create_file("f", 3 * kPage, 1);
        const Bytes bytes = storage::random_bytes(2, 5 * kPage);
        machine.faults().inject({.call = Call::kTruncate, .error = EIO});
        const auto done = machine.run_block({open_step(0, path_of(machine, "f"), kOpenReadWrite),
                                             write_step(0, 0, 5 * kPage, machine.put(bytes)),
                                             cut_step(0, cut), stat_step(0), sync_step(0),
                                             close_step(0)});
        const std::vector<int64_t> wanted{-EIO, 5 * kPage, 0, 0};
        for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(done[2 + i].result, wanted[i]) << i;
        EXPECT_TRUE(bytes_of_file(machine.files().path("f")) == bytes) << "cut at " << cut;
    }
}

// What is marked by way of a view lies beyond the end then: it is nobody's, and in nobody's way.
TEST_P(WriteLoss, ViewsOfAFileThatWasCutLeaveNoDirtyPages) {
    Machine machine(shape_of(8));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 10 * kPage, 1);
    machine.create_file("g", 100 * kPage, 2);
    auto* out = machine.scratch().array<std::byte>(kPage);
    auto* other = machine.scratch().array<std::byte>(3 * kPage);
    constexpr uint32_t kViews = 4;
    std::vector<Step> steps{open_step(0, path_of(machine, "f"), kOpenReadWrite)};
    for (uint32_t i = 0; i < kViews; ++i)
        steps.push_back(map_step(0, i, static_cast<int64_t>((2 + i) * kPage), kPage, out));
    steps.push_back(cut_step(0, kPage));
    for (uint32_t i = 0; i < kViews; ++i) steps.push_back(unmap_step(i));
    steps.push_back(close_step(0));
    EXPECT_EQ(machine.run_block(steps).back().result, 0);
    EXPECT_EQ(machine.dirty_pages(), 0u);
    const auto done = machine.run_block({open_step(1, path_of(machine, "g")),
                                         read_step(1, 5 * kPage, 3 * kPage, other), close_step(1)});
    EXPECT_EQ(done[1].result, int64_t{3 * kPage});
}

TEST_P(WriteLoss, AViewOfAPageThatIsCutWhileItIsReadIsEmpty) {
    Machine machine(side_by_side(16));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 10 * kPage, 1);
    const char* path = path_of(machine, "f");
    auto* out = machine.scratch().array<std::byte>(kPage);
    const Descriptor file = machine.fs().open(path, kOpenReadWrite).value();
    machine.faults().inject(
        {.call = Call::kRead, .action = Action::kDelay, .delay_ns = 400 * kMillisecond});
    machine.faults().inject(
        {.call = Call::kOpen, .action = Action::kDelay, .delay_ns = 100 * kMillisecond});
    std::vector<std::vector<Step>> blocks{
        {set_step(0, file), map_step(0, 0, 5 * kPage, kPage, out), unmap_step(0)},
        {set_step(0, file), open_step(1, path), cut_step(0, 0)}};
    ASSERT_TRUE(machine.run(&blocks).ok());
    EXPECT_EQ(blocks[1][2].result, 0);
    EXPECT_EQ(machine.broken_invariant(), 0);
    EXPECT_EQ(machine.held_pins(), 0u);
    EXPECT_TRUE(machine.fs().close(file).ok());
}

// Who reads a file, changed so lately that its times may hide it, and then has it written here.
TEST_P(WriteLoss, WhoReadsAFileSeesWhatIsWrittenByADescriptorOpenedLater) {
    for (const bool mapped : {false, true}) {
        Machine machine(shape_of(64));
        ASSERT_TRUE(machine.ok());
        machine.create_file("f", 10 * kPage, 1);
        const char* path = path_of(machine, "f");
        const Bytes bytes = storage::random_bytes(9, kPage);
        auto* out = machine.scratch().array<std::byte>(2 * kPage);
        std::vector<Step> steps{open_step(0, path), read_step(0, 0, kPage, out)};
        if (mapped) steps.push_back(map_step(0, 0, 3 * kPage, kPage, out + kPage));
        steps.push_back(open_step(1, path, kOpenReadWrite));
        steps.push_back(write_step(1, 0, kPage, machine.put(bytes)));
        steps.push_back(read_step(0, 0, kPage, out));
        if (mapped) steps.push_back(unmap_step(0));
        steps.push_back(close_step(1));
        (void)machine.run_block(steps);
        EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), out));
    }
}

// One writes while the last one closes, whose write-back fails.
TEST_P(WriteLoss, ACloseThatGivesUpForgetsNobodyElsesWrites) {
    Machine machine(side_by_side(16));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 10 * kPage, 1);
    machine.create_file("g", 10 * kPage, 1);
    const char *path = path_of(machine, "f"), *other = path_of(machine, "g");
    const Descriptor file = machine.fs().open(path, kOpenReadWrite).value();
    const Bytes bytes = storage::random_bytes(3, kPage);
    std::byte* some = machine.put(storage::random_bytes(2, kPage));
    machine.faults().inject({.call = Call::kWrite, .first = 1, .error = EIO});
    machine.faults().inject({.call = Call::kWrite,
                             .action = Action::kDelay,
                             .first = 2,
                             .delay_ns = 300 * kMillisecond});
    machine.faults().inject({.call = Call::kOpen,
                             .action = Action::kDelay,
                             .count = 100,
                             .delay_ns = 100 * kMillisecond});
    std::vector<Step> writer{open_step(1, path, kOpenReadWrite),
                             write_step(1, 5 * kPage, kPage, machine.put(bytes))};
    for (uint32_t i = 2; i < 6; ++i) writer.push_back(open_step(i, other));  // takes time
    writer.push_back(sync_step(1));
    writer.push_back(close_step(1));
    std::vector<std::vector<Step>> blocks{{set_step(0, file), write_step(0, 0, kPage, some),
                                           write_step(0, 8 * kPage, kPage, some), close_step(0)},
                                          writer};
    ASSERT_TRUE(machine.run(&blocks).ok());
    const Bytes now = bytes_of_file(machine.files().path("f"));
    const bool there = std::equal(bytes.begin(), bytes.end(), now.begin() + 5 * kPage);
    const bool told = blocks[1][6].result != 0 || blocks[1][7].result != 0;
    EXPECT_TRUE(there || told) << "lost, and nobody was told";
    EXPECT_EQ(machine.dirty_pages(), 0u);
}

TEST_P(WriteLoss, WhatReclaimCannotWriteIsGone) {
    Machine machine(shape_of(16));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 10 * kPage, 1);
    let_times_pass();
    const Bytes before = bytes_of_file(machine.files().path("f"));
    const char* path = path_of(machine, "f");
    machine.faults().inject({.call = Call::kWrite, .count = UINT64_MAX, .error = ENOSPC});
    std::byte* from = machine.put(storage::random_bytes(3, 2 * kPage));
    (void)machine.run_block(
        {open_step(0, path, kOpenReadWrite), write_step(0, 0, 2 * kPage, from)});
    const auto left = machine.fs().reclaim();
    ASSERT_TRUE(left.ok());
    EXPECT_EQ(left.value().write_error, ENOSPC);
    EXPECT_EQ(machine.dirty_pages(), 0u);
    machine.faults().clear();
    let_times_pass();
    auto* out = machine.scratch().array<std::byte>(2 * kPage);
    (void)machine.run_block({open_step(1, path), read_step(1, 0, 2 * kPage, out), close_step(1)});
    EXPECT_TRUE(std::equal(out, out + 2 * kPage, before.begin())) << "what the file has not";
    const Descriptor later = machine.fs().open(path, kOpenReadWrite).value();
    EXPECT_TRUE(machine.fs().close(later).ok());
    EXPECT_TRUE(bytes_of_file(machine.files().path("f")) == before);
}

// Neither close, sync nor reclaim writes it; what is not written is nowhere then.
TEST_P(WriteLoss, AScratchFileIsNotWrittenAndLeavesNothing) {
    for (const bool closed : {true, false}) {
        Machine machine(shape_of(64));
        ASSERT_TRUE(machine.ok());
        machine.create_file("f", 10 * kPage, 1);
        let_times_pass();
        const char* path = path_of(machine, "f");
        const Bytes before = bytes_of_file(machine.files().path("f"));
        const Bytes bytes = storage::random_bytes(2, 3 * kPage);
        auto* out = machine.scratch().array<std::byte>(3 * kPage);
        auto* later = machine.scratch().array<std::byte>(3 * kPage);
        std::vector<Step> steps{open_step(0, path, kOpenReadWrite | kOpenNoSync),
                                write_step(0, 0, 3 * kPage, machine.put(bytes)), sync_step(0),
                                read_step(0, 0, 3 * kPage, out)};
        if (closed) steps.push_back(close_step(0));
        for (const Step& step : machine.run_block(steps)) EXPECT_GE(step.result, 0);
        EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), out)) << "as long as it is open";
        const auto left = machine.fs().reclaim();
        ASSERT_TRUE(left.ok());
        EXPECT_EQ(left.value().write_error, 0);
        EXPECT_EQ(machine.dirty_pages(), 0u);
        EXPECT_EQ(machine.fs().statistics().open_descriptors, 0u);
        (void)machine.run_block(
            {open_step(0, path), read_step(0, 0, 3 * kPage, later), close_step(0)});
        EXPECT_TRUE(std::equal(later, later + 3 * kPage, before.begin()));
        EXPECT_TRUE(bytes_of_file(machine.files().path("f")) == before);
    }
}

// A page of f that cannot be written must not fail a read of g for which there is room soon.
TEST_P(WriteLoss, AReadWaitsForRoomAndGetsNoOtherFilesErrno) {
    if (on_gpu()) GTEST_SKIP() << "no read holds as many pages as its cache has";
    Shape shape = side_by_side(8);
    shape.permits = 2;
    shape.readahead = Readahead::kOff;
    Machine machine(shape);
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 10 * kPage, 1);
    machine.create_file("g", 100 * kPage, 2);
    const Descriptor f = machine.fs().open(machine.files().path("f"), kOpenReadWrite).value();
    const Descriptor g = machine.fs().open(machine.files().path("g")).value();
    const uint64_t frames = machine.frame_count();
    auto* out = machine.scratch().array<std::byte>(frames * kPage);
    auto* late = machine.scratch().array<std::byte>(kPage);
    machine.faults().inject({.call = Call::kWrite, .count = UINT64_MAX, .error = ENOSPC});
    std::byte* from = machine.put(storage::random_bytes(1, kPage));
    (void)machine.run_block({set_step(0, f), write_step(0, 0, kPage, from)});
    machine.faults().inject(
        {.call = Call::kRead, .action = Action::kDelay, .delay_ns = 3'000 * kMillisecond});
    auto* all_taken = machine.scratch().array<uint64_t>(1);
    std::vector<std::vector<Step>> blocks{
        {set_step(0, g), read_step(0, 0, (frames - 1) * kPage, out)},
        {{.act = Act::kLoop, .out = reinterpret_cast<std::byte*>(all_taken)},
         set_step(0, g),
         read_step(0, 50 * kPage, kPage, late)}};
    std::thread host([&] {
        EXPECT_TRUE(
            Machine::wait_until([&] { return machine.fs().statistics().requests >= frames - 1; }));
        __atomic_store_n(all_taken, 1, __ATOMIC_RELEASE);
    });
    const Status status = machine.run(&blocks);
    host.join();
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(blocks[1][2].result, static_cast<int64_t>(kPage));
    machine.faults().clear();
    EXPECT_EQ(machine.fs().close(f).error_number(), ENOSPC) << "what nobody was told yet";
}

INSTANTIATE_TEST_SUITE_P(Devices, WriteLoss, ::testing::Bool(), name_of_device);

}  // namespace
}  // namespace penstock::system_test
