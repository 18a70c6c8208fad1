// Goal: what was read stays where the next reader finds it, in this launch and the next, and a
// kernel that reads at random costs not a byte more with readahead than without.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "base/prng.h"
#include "system/machine.h"
#include "testing/effort.h"

namespace penstock::system_test {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kReadPages = 4;

using Blocks = std::vector<std::vector<Step>>;

// Reads [offset, offset + size) of the file in `index`, one call for each piece, each to its place
// in `out`.
void add_reads(std::vector<Step>& steps, uint64_t offset, uint64_t size, uint64_t piece,
               std::byte* out) {
    for (uint64_t done = 0; done < size; done += piece) {
        steps.push_back(read_step(0, static_cast<int64_t>(offset + done),
                                  std::min(piece, size - done), out + done));
    }
}

struct Kind {
    const char* name;
    Replacement replacement;
    Readahead readahead = Readahead::kAuto;
    bool warps = false;
    bool remote = false;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class WarmCacheTest : public ::testing::TestWithParam<Kind> {
protected:
    WarmCacheTest()
        : machine_({.permits = 2,
                    .page_size = kPage,
                    .frames = 2048,
                    .helping = !GetParam().remote,
                    .warps = GetParam().warps,
                    .readahead = GetParam().readahead,
                    .replacement = GetParam().replacement,
                    .lanes = 64,
                    .remote = GetParam().remote},
                   64 << 20) {}
    void SetUp() override {
        if (testing::kThreadSanitizer) GTEST_SKIP() << "counts; races are for RandomPrograms";
        if (on_gpu() && GetParam().remote) GTEST_SKIP() << "a GPU always is";
        ASSERT_TRUE(machine_.ok());
        pages_ = machine_.frame_count() / 2;
        machine_.create_file("f", pages_ * kPage, 3);
        file_ = machine_.fs().open(machine_.files().path("f")).value();
    }

    // Each block reads a part of the file, `times` over; all of it is as it should be.
    void read_all(uint64_t block_count, int times) {
        machine_.scratch().clear();
        auto* out = machine_.scratch().array<std::byte>(pages_ * kPage);
        Blocks blocks(block_count);
        const uint64_t share = (pages_ + block_count - 1) / block_count;
        for (uint64_t b = 0; b < block_count; ++b) {
            const uint64_t first = std::min(b * share, pages_) * kPage;
            const uint64_t end = std::min((b + 1) * share, pages_) * kPage;
            blocks[b].push_back(set_step(0, file_));
            for (int i = 0; i < times; ++i)
                add_reads(blocks[b], first, end - first, kReadPages * kPage, out + first);
        }
        const Status status = machine_.run(&blocks);
        ASSERT_TRUE(status.ok()) << status.message() << machine_.device().diagnosis();
        for (const auto& steps : blocks) {
            for (const Step& step : steps) {
                if (step.act != Act::kRead) continue;
                ASSERT_EQ(step.result, static_cast<int64_t>(step.size));
            }
        }
        EXPECT_EQ(machine_.files().file("f").mismatch(0, {out, pages_ * kPage}), pages_ * kPage);
        EXPECT_EQ(machine_.broken_invariant(), 0);
    }
    FileStatistics counts() { return machine_.fs().file_statistics(file_).value(); }

    Machine machine_;
    uint64_t pages_ = 0;
    Descriptor file_ = -1;
};

TEST_P(WarmCacheTest, HalfTheCacheIsHitWheneverItIsReadAgain) {
    read_all(1, 2);
    FileStatistics seen = counts();
    EXPECT_EQ(seen.pages, 2 * pages_);
    EXPECT_EQ(seen.misses + seen.window_hits + seen.window_late, pages_) << "each page once";
    EXPECT_EQ(seen.hits, pages_) << "all of the second time";
    const uint64_t bytes = machine_.fs().statistics().bytes_read;
    EXPECT_EQ(bytes, pages_ * kPage);
    // The next launches have other grids, and blocks that read other parts than the one before.
    for (const uint64_t blocks : {1, 7, 3, 40}) {
        const FileStatistics before = seen;
        read_all(blocks, 1);
        seen = counts();
        EXPECT_EQ(seen.hits - before.hits, seen.pages - before.pages) << blocks << " blocks";
        EXPECT_EQ(seen.pages - before.pages, pages_);
        EXPECT_EQ(machine_.fs().statistics().bytes_read, bytes);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, WarmCacheTest,
    ::testing::Values(Kind{"rings", Replacement::kRings},
                      Kind{"global_lra", Replacement::kGlobalLra},
                      Kind{"clock", Replacement::kClock},
                      Kind{"rings_of_warps", Replacement::kRings, Readahead::kAuto, true},
                      Kind{"rings_without_windows", Replacement::kRings, Readahead::kOff},
                      Kind{"static_windows", Replacement::kRings, Readahead::kStatic},
                      Kind{"remote", Replacement::kRings, Readahead::kAuto, false, true},
                      Kind{"remote_warps", Replacement::kClock, Readahead::kAuto, true, true}),
    [](const auto& made) { return std::string(made.param.name); });

// As many pages behind every miss as was asked for (seed 000, section 4.1), however small the
// cache.
TEST(StaticReadaheadTest, AsksForPageAndPrefetchSize) {
    for (const uint64_t frames : {16, 64, 256, 2048}) {
        for (const uint64_t pages : {1, 3, 4, 15, 60, 63}) {
            Machine machine({.permits = 2, .page_size = kPage, .frames = frames});
            ASSERT_TRUE(machine.ok());
            FileSystemOptions options;
            options.page_size = kPage;
            options.cache_size = machine.frame_count() * kPage;
            options.readahead = Readahead::kStatic;
            options.prefetch_size = pages * kPage;
            auto fs = FileSystem::create(machine.device(), options);
            if (pages + 1 > machine.frame_count() / 4) {
                EXPECT_EQ(fs.status().error_number(), EINVAL) << frames << " frames, " << pages;
                continue;
            }
            ASSERT_TRUE(fs.ok()) << fs.status().message();
            machine.use(std::move(fs.value()));
            machine.create_file("f", 1000 * kPage, 5);
            const Descriptor file = machine.fs().open(machine.files().path("f")).value();
            auto* out = machine.scratch().array<std::byte>(kPage);
            Blocks blocks = {{set_step(0, file), read_step(0, 100 * kPage, kPage, out)}};
            ASSERT_TRUE(machine.run(&blocks).ok());
            ASSERT_EQ(blocks[0][1].result, static_cast<int64_t>(kPage));
            const uint64_t asked = machine.fs().statistics().pages.prefetched;
            EXPECT_LE(asked, pages + 1);
            // Of a small cache, as much as a slab of a ring. A GPU's permits make all of them
            // small.
            EXPECT_GE(asked, frames == 2048 && !on_gpu() ? pages + 1 : 2)
                << frames << " frames, " << pages;
            EXPECT_EQ(machine.broken_invariant(), 0);
        }
    }
}

// Windows of streams that nobody goes on with hold all the frames that windows may.
TEST(IdleWindowsTest, MakeRoomForOthers) {
    for (const Replacement replacement :
         {Replacement::kRings, Replacement::kGlobalLra, Replacement::kClock}) {
        for (const unsigned block_count : {1u, 2u}) {
            Machine machine({.permits = 2, .frames = 512, .replacement = replacement});
            ASSERT_TRUE(machine.ok());
            const uint64_t pages = machine.frame_count() * 2;
            machine.create_file("f", pages * kPage, 5);
            auto* out = machine.scratch().array<std::byte>(block_count * kPage);
            const Descriptor file = machine.fs().open(machine.files().path("f")).value();
            // Each of these reads asks for a large window.
            Blocks left(block_count);
            for (uint64_t b = 0; b < block_count; ++b) {
                left[b] = {set_step(0, file), {.act = Act::kAdvise, .file = 0, .flags = 1}};
                for (uint64_t i = 0; i < 3; ++i) {
                    left[b].push_back(
                        read_step(0, static_cast<int64_t>((3 * b + i) * (pages / 7) * kPage), kPage,
                                  out + b * kPage));
                }
            }
            ASSERT_TRUE(machine.run(&left).ok());
            machine.create_file("g", pages * kPage, 6);
            const Descriptor next = machine.fs().open(machine.files().path("g")).value();
            Blocks blocks = {{set_step(0, next)}};
            for (uint64_t page = 0; page < pages; ++page)
                blocks[0].push_back(read_step(0, static_cast<int64_t>(page * kPage), kPage, out));
            ASSERT_TRUE(machine.run(&blocks).ok());
            const FileStatistics statistics = machine.fs().file_statistics(next).value();
            EXPECT_GT(statistics.window_hits + statistics.window_late, pages / 2)
                << block_count << " blocks";
            EXPECT_EQ(machine.broken_invariant(), 0);
        }
    }
}

// What windows may hold is told before anything is read, what they hold whenever somebody asks:
// also of a device whose words the host cannot address.
TEST(WindowMemoryTest, IsBoundedAndTold) {
    for (const bool remote : {false, true}) {
        if (on_gpu() && remote) continue;  // a GPU always is
        Machine machine({.permits = 2, .frames = 512, .helping = !remote, .remote = remote});
        ASSERT_TRUE(machine.ok());
        const uint64_t cache_size = machine.frame_count() * kPage;
        const FileSystemStatistics before = machine.fs().statistics();
        EXPECT_EQ(before.cache_size, cache_size);
        EXPECT_EQ(before.readahead.windows_size_max, cache_size / 4 / kPage * kPage);
        EXPECT_EQ(before.readahead.windows_size, 0u);
        EXPECT_GT(before.readahead.tables_size, 2 * sizeof(ReadaheadPlace));
        const uint64_t pages = machine.frame_count() * 2;
        machine.create_file("f", pages * kPage, 5);
        const Descriptor file = machine.fs().open(machine.files().path("f")).value();
        auto* out = machine.scratch().array<std::byte>(kPage);
        // Each of these reads asks for a large window, and leaves it.
        Blocks blocks = {{set_step(0, file), advise_step(0, Advice::kSequential)}};
        for (uint64_t i = 0; i < 7; ++i) {
            const auto offset = static_cast<int64_t>(i * (pages / 7) * kPage);
            blocks[0].push_back(read_step(0, offset, kPage, out));
            ASSERT_TRUE(machine.run(&blocks).ok());
            const ReadaheadMemory now = machine.fs().statistics().readahead;
            EXPECT_GT(now.windows_size, 0u);
            EXPECT_LE(now.windows_size, now.windows_size_max);
        }
        EXPECT_EQ(machine.broken_invariant(), 0);
    }
}

TEST(WindowMemoryTest, IsNoneWithoutReadahead) {
    Machine machine({.permits = 2, .frames = 512, .readahead = Readahead::kOff});
    ASSERT_TRUE(machine.ok());
    const ReadaheadMemory memory = machine.fs().statistics().readahead;
    EXPECT_EQ(memory.windows_size_max, 0u);
    EXPECT_EQ(memory.windows_size, 0u);
}

// A place that has seen nothing but random reads for long finds a stream soon all the same.
TEST(WatchTest, AStreamBehindRandomReadsIsFound) {
    constexpr uint64_t kPages = 4000, kRandom = 300, kStream = 400;
    Machine machine({.permits = 1, .frames = 2048});
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", kPages * kPage, 7);
    auto* out = machine.scratch().array<std::byte>(kPage);
    const Descriptor file = machine.fs().open(machine.files().path("f")).value();
    Blocks blocks = {{set_step(0, file)}};
    base::Prng prng(9);
    for (uint64_t i = 0; i < kRandom; ++i) {
        const uint64_t page = prng.below(kPages - kStream);
        blocks[0].push_back(read_step(0, static_cast<int64_t>(page * kPage), kPage, out));
    }
    for (uint64_t page = kPages - kStream; page < kPages; ++page)
        blocks[0].push_back(read_step(0, static_cast<int64_t>(page * kPage), kPage, out));
    ASSERT_TRUE(machine.run(&blocks).ok());
    const FileStatistics seen = machine.fs().file_statistics(file).value();
    EXPECT_GT(seen.window_hits + seen.window_late, kStream - 40);
}

// Every page of a file of many times the cache, each once, in an order without order.
class RandomReadsTest : public ::testing::TestWithParam<std::tuple<Replacement, bool>> {
protected:
    static constexpr uint64_t kFilePages = 16384;

    void SetUp() override {
        if (testing::kThreadSanitizer)
            GTEST_SKIP() << "counts, which take minutes; races are for RandomPrograms";
        if (on_gpu() && !std::get<1>(GetParam())) GTEST_SKIP() << "blocks of a GPU do not help";
    }
    struct Cost {
        uint64_t bytes = 0;       // from storage
        uint64_t prefetched = 0;  // pages
    };
    // Of a program that reads `orders`, one list of pages for each block.
    static Cost cost(Readahead readahead, const std::vector<std::vector<uint64_t>>& orders) {
        const auto [replacement, workers] = GetParam();
        Machine machine({.permits = 2,
                         .page_size = kPage,
                         .frames = 2048,
                         .helping = !workers,
                         .readahead = readahead,
                         .replacement = replacement},
                        16 << 20);
        EXPECT_TRUE(machine.ok());
        EXPECT_TRUE(machine.files().create("f") && machine.files().resize("f", kFilePages * kPage));
        auto* out = machine.scratch().array<std::byte>(orders.size() * kPage);
        Blocks blocks(orders.size());
        const Descriptor file = machine.fs().open(machine.files().path("f")).value();
        for (size_t b = 0; b < orders.size(); ++b) {
            blocks[b].push_back(set_step(0, file));
            for (const uint64_t page : orders[b]) {
                blocks[b].push_back(
                    read_step(0, static_cast<int64_t>(page * kPage), kPage, out + b * kPage));
            }
        }
        const Status status = machine.run(&blocks);
        EXPECT_TRUE(status.ok()) << status.message() << machine.device().diagnosis();
        EXPECT_TRUE(machine.service().serve_all(std::chrono::seconds(30)).ok());
        EXPECT_EQ(machine.broken_invariant(), 0);
        const FileSystemStatistics statistics = machine.fs().statistics();
        return {statistics.bytes_read, statistics.pages.prefetched};
    }
    static std::vector<uint64_t> shuffled(uint64_t count, uint64_t seed) {
        std::vector<uint64_t> pages(count);
        std::iota(pages.begin(), pages.end(), 0);
        base::Prng prng(seed);
        for (uint64_t i = count - 1; i > 0; --i) std::swap(pages[i], pages[prng.below(i + 1)]);
        return pages;
    }
};

TEST_P(RandomReadsTest, CostNotAByteMore) {
    // No page is next to one of the last ones, nor as far from it as that from the one before: what
    // happens by chance is another test's.
    std::vector<std::vector<uint64_t>> orders(1);
    std::vector<uint64_t> last;
    for (const uint64_t page : shuffled(kFilePages, 1)) {
        if (orders[0].size() == 6000) break;
        const bool near = std::ranges::any_of(
            orders[0].end() - std::min<ptrdiff_t>(40, std::ssize(orders[0])), orders[0].end(),
            [&](uint64_t other) { return page > other ? page - other < 2 : other - page < 2; });
        if (!near) orders[0].push_back(page);
    }
    const Cost off = cost(Readahead::kOff, orders), on = cost(Readahead::kAuto, orders);
    EXPECT_EQ(off.bytes, orders[0].size() * kPage);
    EXPECT_EQ(on.bytes, off.bytes);
    EXPECT_EQ(on.prefetched, 0u);
}

// Some reads of a long series look like a stream: by chance, or since every second one goes on
// where the last ended.
TEST_P(RandomReadsTest, CostFiftiethMoreWhateverTheyLookLike) {
    for (const uint64_t run : {1, 2}) {
        for (const size_t block_count : {1, 5}) {
            std::vector<std::vector<uint64_t>> orders(block_count);
            size_t next = 0;
            for (const uint64_t which : shuffled(kFilePages / run, 2)) {
                std::vector<uint64_t>& mine = orders[next++ % block_count];
                for (uint64_t i = 0; i < run; ++i) mine.push_back(which * run + i);
            }
            const Cost off = cost(Readahead::kOff, orders), on = cost(Readahead::kAuto, orders);
            EXPECT_EQ(off.bytes, kFilePages * kPage);
            EXPECT_GE(on.bytes, kFilePages * kPage) << "each page is read once at least";
            EXPECT_LE(static_cast<double>(on.bytes), 1.02 * static_cast<double>(off.bytes))
                << "runs of " << run << ", " << block_count << " blocks";
            EXPECT_GE(on.prefetched, run - 1) << "or the test shows nothing";
        }
    }
}

// Streams that come by every page of a file, most of them more than once, in a cache with room for
// all: readahead asks for no page twice, nor for pages that nobody reads.
TEST_P(RandomReadsTest, StreamsOfAllKindsReadEachPageOnce) {
    struct Walk {
        const char* name;
        int64_t first, step;
        uint64_t size;
    };
    constexpr int64_t kPages = 1200, kLast = kPages * 4096;
    const Walk walks[] = {
        {"pages", 0, 4096, 4096},
        {"three pages, a page apart", 0, 4096, 3 * 4096},
        {"eight pages, three apart", 0, 3 * 4096, 8 * 4096},
        {"backwards", kLast - 4096, -4096, 4096},
        {"backwards, not by whole pages", kLast - 5000, -4096, 4096},
        {"backwards, three pages, a page apart", kLast - 3 * 4096, -4096, 3 * 4096},
        {"backwards, eight pages, three apart", kLast - 8 * 4096, -3 * 4096, 8 * 4096},
        {"in small pieces", 0, 1000, 1000},
        {"with headers left out", 0, 5000, 4500}};
    const auto [replacement, workers] = GetParam();
    for (const Walk& walk : walks) {
        Machine machine({.permits = 1,
                         .page_size = kPage,
                         .frames = 4096,
                         .helping = !workers,
                         .replacement = replacement});
        ASSERT_TRUE(machine.ok());
        machine.create_file("f", kLast, 9);
        auto* out = machine.scratch().array<std::byte>(walk.size);
        const Descriptor file = machine.fs().open(machine.files().path("f")).value();
        Blocks blocks = {{set_step(0, file)}};
        for (int64_t at = walk.first; at >= 0 && at < kLast; at += walk.step)
            blocks[0].push_back(read_step(0, at, walk.size, out));
        const Status status = machine.run(&blocks);
        ASSERT_TRUE(status.ok()) << status.message() << machine.device().diagnosis();
        ASSERT_TRUE(machine.service().serve_all(std::chrono::seconds(30)).ok());
        const FileSystemStatistics statistics = machine.fs().statistics();
        EXPECT_LE(statistics.bytes_read, (kPages + 8) * kPage) << walk.name;
        EXPECT_GT(statistics.pages.window_hits + statistics.pages.window_late, kPages * 9 / 10)
            << walk.name;
        EXPECT_EQ(machine.broken_invariant(), 0);
    }
}

std::string name_of(const std::tuple<Replacement, bool>& kind) {
    constexpr const char* kNames[] = {"rings", "global_lra", "clock"};
    return std::string(kNames[static_cast<int>(std::get<0>(kind))]) +
           (std::get<1>(kind) ? "_workers" : "_helping");
}

INSTANTIATE_TEST_SUITE_P(Kinds, RandomReadsTest,
                         ::testing::Combine(::testing::Values(Replacement::kRings,
                                                              Replacement::kGlobalLra,
                                                              Replacement::kClock),
                                            ::testing::Bool()),
                         [](const auto& made) { return name_of(made.param); });

}  // namespace
}  // namespace penstock::system_test
