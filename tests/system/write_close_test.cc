// Goal: closing a file that was written, by a kernel or by the host, tells what is lost and to
// whom, stands in nobody's way, and leaves no bytes to read that are in no file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "system/write_fixture.h"
#include "testing/effort.h"

namespace penstock::system_test {
namespace {

using testing::usually;

class WriteClose : public WriteTest {
protected:
    static int64_t at(uint64_t page) { return static_cast<int64_t>(page * kPage); }
    // Ends the program where a wait of the host's did not: a thread of it stands still.
    static void expect_soon(const std::atomic<bool>& done, Machine& machine, const char* what) {
        for (int i = 0; i < 3000 && !done; ++i) usleep(10'000);
        if (done) return;
        std::fprintf(stderr, "%s stands still\n%s\n", what, machine.picture().c_str());
        std::_Exit(1);
    }
    static bool has(const std::byte* bytes, const Bytes& wanted) {
        return std::equal(bytes, bytes + kPage, wanted.begin());
    }
};

TEST_P(WriteClose, ByTheHostOfAFullDiskEndsNoKernelInAHang) {
    Shape shape = side_by_side(8);
    shape.permits = 1;
    shape.readahead = Readahead::kOff;
    Machine machine(shape, 64 << 20);  // a GPU's cache has thousands of frames
    ASSERT_TRUE(machine.ok());
    const uint64_t frames = machine.frame_count();
    machine.create_file("f", 0, 1);
    machine.create_file("g", 10 * kPage, 2);
    const Descriptor f = machine.fs().open(machine.files().path("f"), kOpenReadWrite).value();
    const Descriptor g = machine.fs().open(machine.files().path("g")).value();
    machine.faults().inject({.call = Call::kWrite, .count = UINT64_MAX, .error = ENOSPC});
    std::byte* from = machine.put(storage::random_bytes(1, frames * kPage));
    auto* out = machine.scratch().array<std::byte>(kPage);
    (void)machine.run_block({set_step(0, f), write_step(0, 0, frames * kPage, from)});
    std::vector<BlockSteps*> kernels;
    for (uint64_t i = 0; i < usually(200, 20); ++i)
        kernels.push_back(machine.write_down({{set_step(0, g), read_step(0, 0, kPage, out)}}));
    std::atomic<bool> closed{false};
    Status status;
    std::thread closer([&] {
        status = machine.fs().close(f);
        closed = true;
    });
    for (BlockSteps* blocks : kernels) ASSERT_TRUE(machine.start(machine.stream(), blocks, 1).ok());
    const Status ended = machine.stream().synchronize(std::chrono::seconds(30));
    EXPECT_TRUE(ended.ok()) << ended.message();
    expect_soon(closed, machine, "close()");
    closer.join();
    EXPECT_EQ(status.error_number(), ENOSPC);
}

TEST_P(WriteClose, ByTheHostBesideASyncOfAnotherThread) {
    Machine machine(side_by_side(16));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 4 * kPage, 1);
    const std::string path = machine.files().path("f");
    machine.faults().inject({.call = Call::kWrite, .count = UINT64_MAX, .error = ENOSPC});
    std::byte* from = machine.put(storage::random_bytes(1, 4 * kPage));
    for (uint64_t round = 0; round < usually(40, 5); ++round) {
        const Descriptor f = machine.fs().open(path, kOpenReadWrite).value();
        const Descriptor r = machine.fs().open(path).value();
        (void)machine.run_block({set_step(0, f), write_step(0, 0, 4 * kPage, from)});
        std::atomic<bool> closed{false}, stop{false};
        std::vector<std::thread> others;
        for (int i = 0; i < 2; ++i)
            others.emplace_back([&] {
                while (!stop) (void)machine.fs().sync(r);
            });
        others.emplace_back([&] {
            (void)machine.fs().close(f);
            closed = true;
        });
        expect_soon(closed, machine, "close()");
        stop = true;
        for (std::thread& other : others) other.join();
        EXPECT_TRUE(machine.fs().close(r).ok());
    }
}

TEST_P(WriteClose, SyncsTellEachWhatCannotBeWritten) {
    Machine machine(side_by_side(16));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 8 * kPage, 1);
    std::byte* from = machine.put(storage::random_bytes(1, 8 * kPage));
    auto* out = machine.scratch().array<std::byte>(8 * kPage);
    const Descriptor f = machine.fs().open(machine.files().path("f"), kOpenReadWrite).value();
    machine.faults().inject({.call = Call::kWrite, .count = UINT64_MAX, .error = ENOSPC});
    EXPECT_EQ(machine.run_block({set_step(0, f), write_step(0, 0, 8 * kPage, from)})[1].result,
              int64_t{8 * kPage});
    std::vector<std::vector<Step>> blocks(4);
    for (uint64_t b = 0; b < 4; ++b) {
        blocks[b] = {set_step(0, f), map_step(0, 0, at(b), kPage, out + at(b))};
        for (uint64_t i = 0; i < usually(300, 30); ++i)
            blocks[b].push_back(b < 2 ? change_step(0, from + at(b)) : sync_step(0));
        blocks[b].push_back(unmap_step(0));
    }
    ASSERT_TRUE(machine.run(&blocks).ok());
    int untold = 0;
    for (const auto& block : blocks) {
        for (const Step& step : block)
            untold += (step.act == Act::kChange || step.act == Act::kSync) && step.result == 0;
    }
    EXPECT_EQ(untold, 0);
    EXPECT_EQ(machine.fs().close(f).error_number(), ENOSPC);
}

// The OS tells an error of a sync to one who asks.
TEST_P(WriteClose, TwoWhoSyncAreBothToldOfOneFault) {
    Machine machine(side_by_side(16));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 4 * kPage, 1);
    const Descriptor f = machine.fs().open(machine.files().path("f"), kOpenReadWrite).value();
    std::byte* from = machine.put(storage::random_bytes(1, 4 * kPage));
    machine.faults().inject({.call = Call::kSync, .error = EIO, .delay_ns = 300 * kMillisecond});
    std::vector<std::vector<Step>> blocks{
        {set_step(0, f), write_step(0, 0, kPage, from), sync_step(0)},
        {set_step(0, f), write_step(0, kPage, kPage, from), sync_step(0)}};
    ASSERT_TRUE(machine.run(&blocks).ok());
    EXPECT_EQ(blocks[0][2].result, -EIO);
    EXPECT_EQ(blocks[1][2].result, -EIO);
    EXPECT_TRUE(machine.fs().close(f).ok());
}

TEST_P(WriteClose, AViewThatIsLetGoTooLateLeavesNothingToReaders) {
    for (const bool reader_holds_the_page : {false, true}) {
        for (const bool reader_was_there : {false, true}) {
            Machine machine(shape_of(16));
            ASSERT_TRUE(machine.ok());
            machine.create_file("f", 4 * kPage, 1);
            const char* path = path_of(machine, "f");
            const Bytes before = bytes_of_file(machine.files().path("f"));
            auto* out = machine.scratch().array<std::byte>(kPage);
            std::byte* lost = machine.put(storage::random_bytes(9, kPage));
            std::vector<Step> steps;
            if (reader_was_there) steps.push_back(open_step(1, path));
            steps.insert(steps.end(), {open_step(0, path, kOpenReadWrite),
                                       map_step(0, 0, 0, kPage, out), close_step(0)});
            if (!reader_was_there) steps.push_back(open_step(1, path));
            if (reader_holds_the_page) steps.push_back(map_step(1, 1, 0, kPage, out));
            const size_t change = steps.size();
            steps.insert(steps.end(), {change_step(0, lost), unmap_step(0)});
            if (reader_holds_the_page) steps.push_back(unmap_step(1));
            steps.push_back(close_step(1));
            const size_t again = steps.size();
            steps.insert(steps.end(),
                         {open_step(1, path), read_step(1, 0, kPage, out), close_step(1)});
            const auto done = machine.run_block(steps);
            EXPECT_EQ(done[change].result, -EBADF);
            EXPECT_EQ(done[change + 1].result, -EBADF);
            EXPECT_EQ(machine.broken_invariant(), 0);
            EXPECT_EQ(machine.dirty_pages(), 0u);
            EXPECT_TRUE(bytes_of_file(machine.files().path("f")) == before);
            EXPECT_EQ(done[again + 1].result, int64_t{kPage});
            EXPECT_TRUE(has(out, before)) << reader_holds_the_page << reader_was_there;
        }
    }
}

// The host drops the pages of an open file for that: what GPU threads know of its size stays.
TEST_P(WriteClose, AFileThatIsNotTrustedForAViewKeepsWhatWasAppended) {
    Machine machine(shape_of(64));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", kPage, 1);
    const std::string name = machine.files().path("f");
    const char* path = path_of(machine, "f");
    const Bytes appended = storage::random_bytes(3, 10 * kPage),
                part = storage::random_bytes(4, 10);
    auto* out = machine.scratch().array<std::byte>(kPage);
    const auto done = machine.run_block(
        {open_step(0, path), open_step(1, path, kOpenReadWrite),
         write_step(1, 0, 10 * kPage, machine.put(appended)), map_step(1, 0, 0, kPage, out),
         close_step(1), map_step(0, 1, 0, kPage, out), unmap_step(0), unmap_step(1)});
    EXPECT_EQ(done[6].result, -EBADF);
    const Descriptor opened = machine.fs().open(name).value();
    (void)machine.run_block({open_step(2, path, kOpenReadWrite),
                             write_step(2, at(5) + 100, 10, machine.put(part)), close_step(2)});
    Bytes wanted = appended;
    std::copy(part.begin(), part.end(), wanted.begin() + at(5) + 100);
    EXPECT_TRUE(bytes_of_file(name) == wanted);
    EXPECT_TRUE(machine.fs().close(opened).ok());
}

TEST_P(WriteClose, ALostViewOfAFileThatIsOpenForReadingAgainLeavesNothing) {
    Machine machine(shape_of(16));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 3 * kPage, 1);
    const char* path = path_of(machine, "f");
    const Bytes before = bytes_of_file(machine.files().path("f"));
    auto* out = machine.scratch().array<std::byte>(kPage);
    std::byte* lost = machine.put(storage::random_bytes(9, kPage));
    (void)machine.run_block({open_step(0, path, kOpenReadWrite), map_step(0, 0, 0, kPage, out),
                             close_step(0), open_step(0, path), change_step(0, lost)});
    ASSERT_TRUE(machine.fs().reclaim().ok());
    (void)machine.run_block({open_step(0, path), read_step(0, 0, kPage, out), close_step(0)});
    EXPECT_TRUE(has(out, before));
}

TEST_P(WriteClose, WhoMadeAFileExclusivelyIsNotToldThatItExists) {
    Machine machine(side_by_side(16));
    ASSERT_TRUE(machine.ok());
    const std::string path = machine.files().path("new");
    const char* name = machine.scratch().text(path);
    constexpr int kMake = kOpenReadWrite | kOpenCreate | kOpenExclusive | kOpenTruncate;
    for (uint64_t round = 0; round < usually(200, 20); ++round) {
        std::vector<std::vector<Step>> blocks{{open_step(0, name, kMake)},
                                              {open_step(0, name)},
                                              {open_step(0, name)},
                                              {open_step(0, name)}};
        ASSERT_TRUE(machine.run(&blocks).ok());
        ASSERT_GE(blocks[0][0].result, 0) << "round " << round;
        ASSERT_TRUE(machine.fs().reclaim().ok());
        ::unlink(path.c_str());
        machine.scratch().clear();
        name = machine.scratch().text(path);
    }
}

// What is lost is lost for all alike; and who has the file open goes on with it.
TEST_P(WriteClose, WhatIsGivenUpIsNotWhatReadersSeeFromThenOn) {
    for (const bool scratch : {false, true}) {
        Machine machine(shape_of(64));
        ASSERT_TRUE(machine.ok());
        machine.create_file("f", 4 * kPage, 1);
        const char* path = path_of(machine, "f");
        const Bytes before = bytes_of_file(machine.files().path("f"));
        const Bytes bytes = storage::random_bytes(9, kPage);
        std::byte* lost = machine.put(storage::random_bytes(8, 6 * kPage));
        auto* first = machine.scratch().array<std::byte>(kPage);
        auto* second = machine.scratch().array<std::byte>(kPage);
        if (!scratch)
            machine.faults().inject({.call = Call::kWrite, .count = UINT64_MAX, .error = ENOSPC});
        const auto given_up = machine.run_block(
            {open_step(0, path), open_step(1, path, kOpenReadWrite | (scratch ? kOpenNoSync : 0)),
             write_step(1, 0, 6 * kPage, lost), close_step(1), read_step(0, 0, kPage, first),
             stat_step(0)});
        EXPECT_EQ(given_up[3].result, scratch ? 0 : -ENOSPC);
        EXPECT_TRUE(has(first, before)) << scratch;
        EXPECT_EQ(given_up[5].result, int64_t{4 * kPage}) << "a size that the file has not";
        machine.faults().clear();
        const auto written = machine.run_block(
            {set_step(0, given_up[0].result), open_step(2, path, kOpenReadWrite),
             write_step(2, 0, kPage, machine.put(bytes)), close_step(2),
             read_step(0, 0, kPage, second), close_step(0)});
        EXPECT_EQ(written[3].result, 0);
        EXPECT_TRUE(has(second, bytes)) << scratch;
    }
}

// Others open the file again and again while it is given up: each has it as it is on the host.
TEST_P(WriteClose, OpensWaitForWhatIsGivenUp) {
    Machine machine(side_by_side(64));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 4 * kPage, 1);
    const char* path = path_of(machine, "f");
    const Bytes before = bytes_of_file(machine.files().path("f"));
    std::byte* lost = machine.put(storage::random_bytes(8, kPage));
    auto* out = machine.scratch().array<std::byte>(4 * kPage);
    machine.faults().inject({.call = Call::kWrite, .count = UINT64_MAX, .error = ENOSPC});
    std::vector<std::vector<Step>> blocks(4);
    for (uint64_t b = 0; b < 4; ++b) {
        // All read the page that one writes, which ThreadSanitizer would say.
        const int64_t page = testing::kThreadSanitizer ? at(b) : 0;
        for (uint64_t i = 0; i < usually(100, 10); ++i) {
            blocks[b].push_back(open_step(0, path, b == 0 ? kOpenReadWrite : kOpenReadOnly));
            if (b == 0) blocks[b].push_back(write_step(0, 0, kPage, lost));
            blocks[b].push_back(read_step(0, page, kPage, out + at(b)));
            blocks[b].push_back(close_step(0));
        }
    }
    ASSERT_TRUE(machine.run(&blocks).ok());
    for (uint64_t b = 0; b < 4; ++b) {
        for (const Step& step : blocks[b]) {
            const bool opens = step.act == Act::kOpen;
            if (!opens && step.act != Act::kClose) continue;
            EXPECT_TRUE(opens ? step.result >= 0 : step.result == (b == 0 ? -ENOSPC : 0))
                << b << ": " << step.result;
        }
    }
    EXPECT_EQ(machine.dirty_pages(), 0u);
    EXPECT_EQ(machine.broken_invariant(), 0);
    machine.faults().clear();
    (void)machine.run_block({open_step(0, path), read_step(0, 0, kPage, out), close_step(0)});
    EXPECT_TRUE(has(out, before));
}

INSTANTIATE_TEST_SUITE_P(Devices, WriteClose, ::testing::Bool(), name_of_device);

}  // namespace
}  // namespace penstock::system_test
