// Goal: what kernels write is in the file, whatever the cache, and no write is lost in silence.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/prng.h"
#include "system/machine.h"
#include "testing/effort.h"

namespace penstock::system_test {
namespace {

std::vector<Shape> shapes() {
    std::vector<Shape> all;
    for (const bool warps : {false, true}) {
        for (const bool remote : {false, true}) {
            Shape shape;
            shape.frames = 8;
            shape.warps = warps;
            shape.remote = remote;
            shape.helping = !remote;
            all.push_back(shape);
            shape.helping = false;
            shape.frames = 64;
            shape.page_size = testing::usually(16384, 8192);
            all.push_back(shape);
        }
    }
    return all;
}

class Writing : public ::testing::TestWithParam<Shape> {
protected:
    Writing() : machine_(GetParam(), 16 << 20, 8) {}
    Machine machine_;
};

TEST_P(Writing, AFileOfManyTimesTheCacheComesOutAsItWasWritten) {
    ASSERT_TRUE(machine_.ok());
    const std::string path = machine_.scratch_path("written");
    const uint64_t size = testing::usually(5, 2) * machine_.frame_count() *
                              machine_.shape().page_size +
                          1000;
    const Bytes bytes = storage::random_bytes(1, size);
    std::byte* from = machine_.put(bytes);
    auto* back = machine_.scratch().array<std::byte>(5000);
    std::vector<Step> steps{
        open_step(0, machine_.scratch().text(path), kOpenReadWrite | kOpenCreate | kOpenTruncate)};
    for (uint64_t at = 0; at < size; at += 5000) {
        const uint64_t count = std::min<uint64_t>(5000, size - at);
        steps.push_back(write_step(0, static_cast<int64_t>(at), count, from + at));
        if (at % 3 == 0) steps.push_back(read_step(0, static_cast<int64_t>(at), count, back));
    }
    steps.push_back(stat_step(0));
    steps.push_back(close_step(0));
    const auto results = results_of(machine_.run_block(steps));
    EXPECT_GE(results.front(), 0);
    for (size_t i = 1; i + 2 < results.size(); ++i)
        ASSERT_EQ(results[i], static_cast<int64_t>(steps[i].size)) << i;
    EXPECT_EQ(results[results.size() - 2], static_cast<int64_t>(size));
    EXPECT_EQ(results.back(), 0);
    EXPECT_TRUE(bytes_of_file(path) == bytes);
}

TEST_P(Writing, PartsOfPagesLeaveTheRestAsItWas) {
    ASSERT_TRUE(machine_.ok());
    const uint64_t size = 3 * machine_.frame_count() * machine_.shape().page_size + 77;
    machine_.create_file("file", size, 3);
    const std::string path = machine_.files().path("file");
    Bytes wanted = bytes_of_file(path);
    const Bytes bytes = storage::random_bytes(2, 4096);
    std::byte* from = machine_.put(bytes);
    base::Prng prng(7);
    std::vector<Step> steps{open_step(0, machine_.scratch().text(path), kOpenReadWrite)};
    for (int i = 0; i < 300; ++i) {
        const uint64_t count = 1 + prng.below(300), at = prng.below(size - count);
        steps.push_back(write_step(0, static_cast<int64_t>(at), count, from + count));
        std::copy_n(bytes.begin() + static_cast<int64_t>(count), count,
                    wanted.begin() + static_cast<int64_t>(at));
    }
    steps.push_back(sync_step(0));
    const auto results = results_of(machine_.run_block(steps));
    EXPECT_EQ(results.back(), 0);
    EXPECT_TRUE(bytes_of_file(path) == wanted);
    auto left = machine_.fs().reclaim();
    ASSERT_TRUE(left.ok()) << left.status().message();
    EXPECT_EQ(left.value().descriptors, 1u);
    EXPECT_EQ(machine_.broken_invariant(), 0);
}

// One block reads through a file page by page, and writes to pages a little ahead, where a window
// is on its way; other reads then push what was written out of the cache.
TEST_P(Writing, WindowsOfAFileThatIsWrittenAreNotStale) {
    ASSERT_TRUE(machine_.ok());
    constexpr uint64_t kPages = testing::usually(120, 40), kAhead = 5;
    const uint64_t page_size = machine_.shape().page_size, frames = machine_.frame_count();
    machine_.create_file("file", kPages * page_size, 3);
    machine_.create_file("other", 4 * frames * page_size, 4);
    const std::string path = machine_.files().path("file");
    Bytes wanted = bytes_of_file(path);
    const Bytes bytes = storage::random_bytes(5, 4096);
    std::byte* from = machine_.put(bytes);
    auto* back = machine_.scratch().array<std::byte>(kPages * page_size);
    // A GPU has thousands of frames, and one block reads page by page for minutes.
    const uint64_t piece = on_gpu() ? 16 : 1;
    auto* elsewhere = machine_.scratch().array<std::byte>(piece * page_size);
    base::Prng prng(8);
    std::vector<Step> steps{
        open_step(0, machine_.scratch().text(path), kOpenReadWrite),
        open_step(1, machine_.scratch().text(machine_.files().path("other")), kOpenReadOnly),
        advise_step(0, Advice::kSequential), advise_step(1, Advice::kRandom)};
    const size_t opened = steps.size();
    for (uint64_t page = 0; page < kPages; ++page) {
        const uint64_t at = page * page_size;
        steps.push_back(read_step(0, static_cast<int64_t>(at), page_size, back + at));
        if (page % 4 != 0 || page + kAhead >= kPages) continue;
        const uint64_t to = at + kAhead * page_size + 100, count = 1 + prng.below(300);
        steps.push_back(write_step(0, static_cast<int64_t>(to), count, from + count));
        std::copy_n(bytes.begin() + static_cast<int64_t>(count), count,
                    wanted.begin() + static_cast<int64_t>(to));
        steps.push_back(sync_step(0));  // or it would stay, and no window were taken
        for (uint64_t i = 0; i < 2 * frames; i += piece) {
            const uint64_t other = prng.below(4 * frames - piece) * page_size;
            steps.push_back(
                read_step(1, static_cast<int64_t>(other), piece * page_size, elsewhere));
        }
    }
    steps.push_back(close_step(0));
    steps.push_back(close_step(1));
    const auto results = results_of(machine_.run_block(steps));
    for (size_t i = opened; i + 2 < results.size(); ++i)
        ASSERT_EQ(results[i], static_cast<int64_t>(steps[i].size)) << i;
    for (uint64_t i = 0; i < wanted.size(); ++i)
        ASSERT_EQ(back[i], wanted[i]) << "page " << i / page_size << ", byte " << i % page_size;
    EXPECT_TRUE(bytes_of_file(path) == wanted);
    if (frames >= 64) {
        EXPECT_GT(machine_.fs().statistics().pages.prefetched, kPages / 4);
    }
}

// Pieces of all sizes, in any order, most of them, each once: what was not written keeps the file's
// bytes, though nothing of it is read; who opens the file then sees all.
TEST_P(Writing, AFileThatIsWrittenOnceIsNeverRead) {
    ASSERT_TRUE(machine_.ok());
    const uint64_t size = 2 * machine_.frame_count() * machine_.shape().page_size + 77;
    const uint64_t new_size = size + 5000;
    machine_.create_file("file", size, 3);
    const std::string path = machine_.files().path("file");
    Bytes wanted = bytes_of_file(path);
    wanted.resize(new_size);
    const Bytes bytes = storage::random_bytes(2, new_size);
    std::byte* from = machine_.put(bytes);
    base::Prng prng(9);
    std::vector<Step> writes;
    for (uint64_t at = 0; at < new_size;) {
        const uint64_t count = std::min(
            new_size - at, prng.below(3) == 0 ? 1 + prng.below(300) : 64 * (1 + prng.below(200)));
        const bool last = at + count == new_size;
        if (last || prng.below(5) != 0) {
            writes.push_back(write_step(0, static_cast<int64_t>(at), count, from + at));
            std::copy_n(bytes.begin() + static_cast<int64_t>(at), count,
                        wanted.begin() + static_cast<int64_t>(at));
        }
        at += count;
    }
    for (size_t i = writes.size(); i > 1; --i) std::swap(writes[i - 1], writes[prng.below(i)]);
    std::vector<Step> steps{
        open_step(0, machine_.scratch().text(path), kOpenWriteOnly | kOpenWriteOnce)};
    for (const Step& write : writes) {
        if (prng.below(4) == 0) {  // in two halves
            steps.push_back(begin_write_step(0, 0, write.offset, write.size, write.out));
            steps.push_back(wait_step(0));
        } else {
            steps.push_back(write);
        }
    }
    steps.push_back(stat_step(0));
    steps.push_back(close_step(0));
    const auto results = results_of(machine_.run_block(steps));
    for (size_t i = 1; i + 2 < results.size(); ++i) {
        if (steps[i].act == Act::kWait) {
            ASSERT_EQ(results[i], static_cast<int64_t>(steps[i - 1].size)) << i;
        } else if (steps[i].act == Act::kWrite) {
            ASSERT_EQ(results[i], static_cast<int64_t>(steps[i].size)) << i;
        }
    }
    EXPECT_EQ(results[results.size() - 2], static_cast<int64_t>(new_size));
    EXPECT_EQ(results.back(), 0);
    EXPECT_EQ(machine_.fs().statistics().bytes_read, 0u);
    EXPECT_TRUE(bytes_of_file(path) == wanted);
    auto* back = machine_.scratch().array<std::byte>(new_size);
    (void)machine_.run_block({open_step(0, machine_.scratch().text(path)),
                              read_step(0, 0, new_size, back), close_step(0)});
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), back)) << "a page with holes was read";
}

// Blocks beside each other, a few bytes of each page of a file that fits: nothing else is written.
TEST_P(Writing, AFewBytesOfEachPageByManyBlocks) {
    Shape shape = GetParam();
    shape.permits = 16;
    shape.workers = 8;
    shape.frames = testing::usually(4096, 1024);
    Machine machine(shape);
    ASSERT_TRUE(machine.ok());
    constexpr uint64_t kBlocks = 16, kPart = limits::kGranuleSize;
    const uint64_t page_size = shape.page_size;
    const uint64_t pages = (16 << 20) / page_size / testing::usually(1, 16);
    machine.create_file("file", pages * page_size, 3);
    const std::string path = machine.files().path("file");
    Bytes wanted = bytes_of_file(path);
    const Bytes bytes = storage::random_bytes(5, kPart);
    std::byte* from = machine.put(bytes);
    const char* text = machine.scratch().text(path);
    std::vector<std::vector<Step>> blocks(kBlocks, {open_step(0, text, kOpenReadWrite)});
    for (uint64_t page = 0; page < pages; ++page) {
        blocks[page % kBlocks].push_back(
            write_step(0, static_cast<int64_t>(page * page_size), kPart, from));
        std::copy(bytes.begin(), bytes.end(),
                  wanted.begin() + static_cast<int64_t>(page * page_size));
    }
    for (auto& steps : blocks) steps.push_back(close_step(0));
    ASSERT_TRUE(machine.run(&blocks).ok()) << machine.picture();
    EXPECT_TRUE(bytes_of_file(path) == wanted);
    EXPECT_EQ(machine.fs().statistics().bytes_written, pages * kPart);
}

TEST_P(Writing, AFileThatIsOpenIsCutByWhoOpensItSo) {
    ASSERT_TRUE(machine_.ok());
    const uint64_t size = 5 * machine_.shape().page_size + 100;
    machine_.create_file("file", size, 3);
    const std::string path = machine_.files().path("file");
    const char* text = machine_.scratch().text(path);
    auto* back = machine_.scratch().array<std::byte>(size);
    const Bytes bytes = storage::random_bytes(4, 300);
    std::byte* from = machine_.put(bytes);
    const auto results = results_of(machine_.run_block(
        {open_step(0, text, kOpenReadWrite), read_step(0, 0, size, back),
         write_step(0, 200, 300, from), open_step(1, text, kOpenWriteOnly | kOpenTruncate),
         stat_step(0), read_step(0, 0, size, back), write_step(1, 10, 300, from),
         read_step(0, 0, 310, back), close_step(1), close_step(0)}));
    EXPECT_GE(results[3], 0);
    const std::vector<int64_t> wanted{0, 0, 300, 310, 0, 0};
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(results[4 + i], wanted[i]) << i;
    Bytes whole(10);
    whole.insert(whole.end(), bytes.begin(), bytes.end());
    EXPECT_TRUE(std::equal(whole.begin(), whole.end(), back));
    EXPECT_TRUE(bytes_of_file(path) == whole);
}

// Many begun, waited for in another order: the last to be waited for has the last word.
TEST_P(Writing, PartsBegunEarlierLeaveTheRestAsItWas) {
    ASSERT_TRUE(machine_.ok());
    const uint64_t size = 3 * machine_.frame_count() * machine_.shape().page_size + 77;
    machine_.create_file("file", size, 3);
    const std::string path = machine_.files().path("file");
    Bytes wanted = bytes_of_file(path);
    const uint64_t count_max = 3 * machine_.shape().page_size;
    const Bytes bytes = storage::random_bytes(2, 2 * count_max);
    std::byte* from = machine_.put(bytes);
    base::Prng prng(7);
    std::vector<Step> steps{open_step(0, machine_.scratch().text(path), kOpenReadWrite)};
    for (int i = 0; i < 40; ++i) {
        for (uint32_t call = 0; call < kCallsPerBlock; ++call) {
            const uint64_t count = 1 + prng.below(prng.below(2) == 0 ? 300 : count_max);
            steps.push_back(begin_write_step(0, call,
                                             static_cast<int64_t>(prng.below(size - count)), count,
                                             from + prng.below(count_max)));
        }
        const size_t first = steps.size() - kCallsPerBlock;
        for (const uint32_t call : {2, 0, 3, 1}) {
            const Step& begun = steps[first + call];
            std::copy_n(bytes.begin() + (begun.out - from), begun.size,
                        wanted.begin() + begun.offset);
            steps.push_back(wait_step(call));
        }
    }
    steps.push_back(close_step(0));
    const auto results = results_of(machine_.run_block(steps));
    for (size_t i = 1; i + 1 < steps.size(); ++i)
        ASSERT_GE(results[i], steps[i].act == Act::kWait ? 1 : 0) << i;
    EXPECT_EQ(results.back(), 0);
    EXPECT_TRUE(bytes_of_file(path) == wanted);
}

TEST_P(Writing, AnAppendHasItsRoomFromItsFirstHalfOn) {
    ASSERT_TRUE(machine_.ok());
    machine_.create_file("file", 5000, 3);
    const std::string path = machine_.files().path("file");
    const Bytes first = storage::random_bytes(4, 9000), second = storage::random_bytes(5, 300);
    auto* gap = machine_.scratch().array<std::byte>(9300);
    auto* refused = machine_.scratch().array<std::byte>(8);
    const auto results = results_of(machine_.run_block({
        open_step(0, machine_.scratch().text(path), kOpenReadWrite | kOpenAppend),
        begin_write_step(0, 0, 7, 9000, machine_.put(first)),
        write_step(0, 7, 300, machine_.put(second)),
        stat_step(0),
        read_step(0, 5000, 9300, gap),
        begin_write_step(0, 1, 7, 8, nullptr),  // refused: no room is taken
        begin_write_step(0, 1, 7, uint64_t{1} << 60, refused),
        stat_step(0),
        wait_step(0),
        stat_step(0),
        close_step(0),
    }));
    const int64_t wanted[] = {0, 0, 300, 14'300, 9300, -EFAULT, -EFBIG, 14'300, 9000, 14'300, 0};
    for (size_t i = 2; i < results.size(); ++i) EXPECT_EQ(results[i], wanted[i]) << i;
    EXPECT_TRUE(std::all_of(gap, gap + 9000, [](std::byte b) { return b == std::byte{0}; }));
    EXPECT_TRUE(std::equal(second.begin(), second.end(), gap + 9000));
    Bytes there = bytes_of_file(path);
    ASSERT_EQ(there.size(), 14'300u);
    EXPECT_TRUE(std::equal(first.begin(), first.end(), there.begin() + 5000));
    EXPECT_TRUE(std::equal(second.begin(), second.end(), there.begin() + 14'000));
}

// Its first half asks for what must be read, and for nothing else; and changes nothing.
TEST_P(Writing, AWriteThatNobodyWaitsForIsReclaimed) {
    ASSERT_TRUE(machine_.ok());
    const uint64_t page = machine_.shape().page_size;
    machine_.create_file("file", 10 * page, 3);
    const std::string path = machine_.files().path("file");
    const Bytes before = bytes_of_file(path);
    std::byte* from = machine_.put(storage::random_bytes(4, 4 * page));
    const auto requests = [&] { return machine_.fs().statistics().requests; };
    const char* text = machine_.scratch().text(path);
    (void)machine_.run_block(
        {open_step(0, text, kOpenReadWrite), begin_write_step(0, 0, 0, 4 * page, from)});
    auto left = machine_.fs().reclaim();
    ASSERT_TRUE(left.ok()) << left.status().message();
    EXPECT_EQ(requests(), 0u) << "whole pages need no reading";
    EXPECT_EQ(left.value().reads, 1u);
    const auto page_offset = static_cast<int64_t>(page);
    (void)machine_.run_block({open_step(0, text, kOpenReadWrite),
                              begin_write_step(0, 1, page_offset / 2, 2 * page, from)});
    left = machine_.fs().reclaim();
    ASSERT_TRUE(left.ok()) << left.status().message();
    EXPECT_EQ(requests(), 2u) << "first and last page";
    EXPECT_EQ(left.value().reads, 1u);
    EXPECT_EQ(machine_.held_pins(), 0u);
    EXPECT_EQ(machine_.broken_invariant(), 0);
    EXPECT_TRUE(bytes_of_file(path) == before);
}

TEST_P(Writing, AFileClosedBetweenTheHalvesIsNotWritten) {
    ASSERT_TRUE(machine_.ok());
    const uint64_t page = machine_.shape().page_size;
    machine_.create_file("file", 10 * page, 3);
    const std::string path = machine_.files().path("file");
    const Bytes before = bytes_of_file(path);
    std::byte* from = machine_.put(storage::random_bytes(4, 4 * page));
    const char* text = machine_.scratch().text(path);
    std::vector<Step> steps;
    for (const int64_t offset : {int64_t{10}, static_cast<int64_t>(page)}) {
        steps.push_back(open_step(0, text, kOpenReadWrite));
        steps.push_back(begin_write_step(0, 0, offset, 3 * page, from));
        steps.push_back(close_step(0));
        steps.push_back(wait_step(0));
        steps.push_back(wait_step(0));
    }
    const auto results = results_of(machine_.run_block(steps));
    for (size_t i = 0; i < results.size(); i += 5) {
        EXPECT_GE(results[i + 1], 0);
        EXPECT_EQ(results[i + 2], 0);
        EXPECT_EQ(results[i + 3], -EBADF);
        EXPECT_EQ(results[i + 4], -EINVAL) << "the handle is good for one";
    }
    EXPECT_EQ(machine_.held_pins(), 0u);
    EXPECT_TRUE(bytes_of_file(path) == before);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Writing, ::testing::ValuesIn(shapes()),
                         [](const ::testing::TestParamInfo<Shape>& shape) {
                             std::string name = describe(shape.param);
                             for (char& c : name)
                                 if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                             return name;
                         });

// Neighbours in the file are written together wherever their frames are.
TEST(WritingMuch, PagesThatWereWrittenInAnyOrderAreWrittenBackInFewerCalls) {
    constexpr uint64_t kPage = 4096, kPages = 4096;
    Shape shape;
    shape.frames = kPages * 3 / 4;
    Machine machine(shape, 32 << 20);
    ASSERT_TRUE(machine.ok());
    const std::string path = machine.scratch_path("written");
    const Bytes bytes = storage::random_bytes(1, kPages * kPage);
    std::byte* from = machine.put(bytes);
    std::vector<uint64_t> order(kPages);
    std::iota(order.begin(), order.end(), 0);
    base::Prng prng(3);
    for (uint64_t i = kPages; i-- > 1;) std::swap(order[i], order[prng.below(i + 1)]);
    std::vector<Step> steps{
        open_step(0, machine.scratch().text(path), kOpenReadWrite | kOpenCreate | kOpenTruncate)};
    for (const uint64_t page : order) {
        const uint64_t at = page * kPage;
        steps.push_back(write_step(0, static_cast<int64_t>(at), kPage, from + at));
    }
    steps.push_back(sync_step(0));
    EXPECT_EQ(results_of(machine.run_block(steps)).back(), 0);
    EXPECT_TRUE(bytes_of_file(path) == bytes);
    // Each page alone takes 3,978 calls here, and 3,220 with its neighbours.
    EXPECT_LE(machine.fs().statistics().writes, kPages * 9 / 10);
}

// Finished write-backs must end soon, so that others can begin. Otherwise the whole cache becomes
// dirty, and each page of a write costs a walk over all frames.
TEST(WritingMuch, NotTheWholeCacheIsDirty) {
    if (testing::kThreadSanitizer) GTEST_SKIP() << "takes minutes there";
    if (on_gpu()) GTEST_SKIP() << "the host cannot see the count of dirty pages";
    constexpr uint64_t kPage = 4096, kPiece = 64 << 10;
    Shape shape;
    shape.frames = 3 * limits::kWriteBacksMax;
    Machine machine(shape);
    ASSERT_TRUE(machine.ok());
    const std::string path = machine.scratch_path("written");
    const Bytes bytes = storage::random_bytes(1, kPiece);
    std::byte* from = machine.put(bytes);
    std::vector<Step> steps{
        open_step(0, machine.scratch().text(path), kOpenReadWrite | kOpenCreate | kOpenTruncate)};
    const uint64_t size = shape.frames * kPage * 3 / 2;
    for (uint64_t at = 0; at < size; at += kPiece)
        steps.push_back(write_step(0, static_cast<int64_t>(at), kPiece, from));
    const auto results = results_of(machine.run_block(steps));
    EXPECT_EQ(results.back(), static_cast<int64_t>(kPiece));
    EXPECT_LT(machine.service().host_state()->dirty_pages, machine.frame_count() / 2);
    ASSERT_TRUE(machine.fs().close(results.front()).ok());
    const Bytes written = bytes_of_file(path);
    ASSERT_EQ(written.size(), size);
    for (uint64_t at = 0; at < size; at += kPiece)
        ASSERT_EQ(std::memcmp(bytes.data(), written.data() + at, kPiece), 0) << at;
}

}  // namespace

// For GoogleTest's messages.
void PrintTo(const Shape& shape, std::ostream* out) { *out << describe(shape); }

}  // namespace penstock::system_test
