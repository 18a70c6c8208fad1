// Goal: each advice does what it says and no more, the last one counts, and none outlives the open
// file. The tests count the pages that the host was asked for, and when.
#include "file/advice_test.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "file/system.h"
#include "page_cache/invalidation.h"
#include "penstock/file_system.h"
#include "testing/bytes.h"

namespace penstock {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kFilePages = 512, kFileSize = kFilePages * kPage - 100;

class AdviceTest : public ::testing::Test {
protected:
    void SetUp() override {
        DeviceOptions options;
        options.memory_size = 128 << 20;
        device_ = Device::open("cpu:1", options).value();
        stream_ = std::move(Stream::create(device_).value());
        buffer_ = static_cast<std::byte*>(device_.allocate(1 << 20).value());
        result_ = static_cast<int64_t*>(device_.allocate(64).value());
        path_ = make_file(1);
    }
    void TearDown() override {
        for (const std::string& path : paths_) unlink(path.c_str());
    }

    std::string make_file(uint64_t seed) {
        const testing::Bytes bytes = testing::random_bytes(seed, kFileSize);
        char name[] = "/tmp/penstock-advice-XXXXXX";
        const int descriptor = mkstemp(name);
        EXPECT_EQ(write(descriptor, bytes.data(), kFileSize), static_cast<ssize_t>(kFileSize));
        close(descriptor);
        paths_.emplace_back(name);
        return name;
    }
    void create(uint64_t frames, bool helping, Replacement replacement = Replacement::kRings) {
        FileSystemOptions wanted;
        wanted.page_size = kPage;
        wanted.cache_size = frames * kPage;
        wanted.helping = helping;
        wanted.replacement = replacement;
        fs_ = std::move(FileSystem::create(device_, wanted).value());
        file_ = fs_.open(path_).value();
    }
    file_test::AdviceJob job(int64_t offset, uint64_t size) {
        return {fs_.device_handle(), file_, offset, size, buffer_, result_};
    }
    int64_t finish(const Status& launched) {
        EXPECT_TRUE(launched.ok()) << launched.message();
        const Status done = stream_.synchronize(std::chrono::seconds(60));
        EXPECT_TRUE(done.ok()) << done.message() << device_.diagnosis();
        EXPECT_EQ(page_cache::check_invariants(*fs_.system()->service().host_state()), 0);
        return *result_;
    }
    int64_t advise(Advice advice, int64_t offset = 0, uint64_t size = 0, bool warps = false) {
        const LaunchShape shape{{1}, {64}};
        return finish(
            warps ? launch(stream_, shape, file_test::advise_by_warps, job(offset, size), advice)
                  : launch(stream_, shape, file_test::advise, job(offset, size), advice));
    }
    int64_t read(int64_t offset, uint64_t size, int64_t step = 0, uint64_t count = 1) {
        return finish(
            launch(stream_, {{1}, {64}}, file_test::read_steps, job(offset, size), step, count));
    }
    // Returns how many pages the host was asked for and has served.
    uint64_t served() {
        EXPECT_TRUE(fs_.system()->service().serve_all(std::chrono::seconds(30)).ok());
        return fs_.statistics().requests;
    }
    [[nodiscard]] uint64_t prefetched() const { return fs_.statistics().pages.prefetched; }

    Device device_;
    FileSystem fs_;
    Stream stream_;
    std::vector<std::string> paths_;
    std::string path_;
    Descriptor file_ = -1;
    std::byte* buffer_ = nullptr;
    int64_t* result_ = nullptr;
};

TEST_F(AdviceTest, WhatIsNeededIsThereBeforeItIsRead) {
    for (const bool warps : {false, true}) {
        create(2048, true);
        EXPECT_EQ(advise(Advice::kRandom), 0);  // what comes is what was asked for, no more
        EXPECT_EQ(advise(Advice::kWillNeed, 3 * kPage + 5, 20 * kPage, warps), 0);
        EXPECT_EQ(fs_.statistics().requests, 0u) << "nobody has waited";
        EXPECT_EQ(served(), 21u) << "pages 3 to 23";
        EXPECT_EQ(advise(Advice::kWillNeed, 0, 30 * kPage, warps), 0);
        EXPECT_EQ(served(), 30u) << "those that were not there";
        EXPECT_EQ(read(0, 30 * kPage), static_cast<int64_t>(30 * kPage));
        EXPECT_EQ(served(), 30u);
    }
}

TEST_F(AdviceTest, NeedToTheEndAndBeyond) {
    create(4096, false);
    EXPECT_EQ(advise(Advice::kWillNeed, (kFilePages - 3) * kPage, 0), 0);
    EXPECT_EQ(served(), 3u);
    EXPECT_EQ(advise(Advice::kWillNeed, (kFilePages - 5) * kPage, 1 << 30), 0);
    EXPECT_EQ(served(), 5u);
    EXPECT_EQ(advise(Advice::kWillNeed, kFileSize + kPage, 1000), 0);
    EXPECT_EQ(served(), 5u);
    // All of it takes several calls, as each may have but so much on its way.
    uint64_t before = 0;
    for (uint64_t now = 5; now != before;) {
        before = now;
        EXPECT_EQ(advise(Advice::kWillNeed), 0);
        now = served();
    }
    EXPECT_EQ(served(), kFilePages);
    EXPECT_EQ(read(0, kFileSize / 4, kFileSize / 4, 4), static_cast<int64_t>(kFileSize / 4 * 4));
    EXPECT_EQ(served(), kFilePages);
    EXPECT_EQ(advise(Advice::kDontNeed), 0);
    EXPECT_EQ(read(0, kPage), static_cast<int64_t>(kPage));
    EXPECT_GT(served(), kFilePages);
}

// A reader may come before pages that were requested ahead: it waits for them and requests no page
// again.
TEST_F(AdviceTest, ReadersMeetWhatIsOnItsWay) {
    create(2048, true);
    EXPECT_EQ(advise(Advice::kRandom), 0);
    for (uint64_t first = 0; first < 400; first += 50) {
        EXPECT_EQ(advise(Advice::kWillNeed, static_cast<int64_t>(first * kPage), 40 * kPage), 0);
        EXPECT_EQ(read(static_cast<int64_t>(first * kPage), 40 * kPage),
                  static_cast<int64_t>(40 * kPage));
    }
    EXPECT_EQ(served(), 8 * 40u);
}

TEST_F(AdviceTest, AFewFramesAreEnough) {
    for (const uint64_t frames : {1, 2, 5, 40}) {
        create(frames, true);
        for (unsigned i = 0; i < 20; ++i) {
            EXPECT_EQ(advise(Advice::kWillNeed, i * 5 * kPage), 0);
            EXPECT_EQ(read(i * 3 * kPage, 7 * kPage), static_cast<int64_t>(7 * kPage)) << frames;
        }
        EXPECT_EQ(page_cache::check_invariants(*fs_.system()->service().host_state()), 0);
    }
}

TEST_F(AdviceTest, TheLastOneCounts) {
    create(2048, true);
    EXPECT_EQ(advise(Advice::kSequential), 0);
    EXPECT_EQ(advise(Advice::kRandom), 0);
    EXPECT_EQ(read(0, kPage, kPage, 50), static_cast<int64_t>(50 * kPage));
    EXPECT_EQ(prefetched(), 0u);
    EXPECT_EQ(advise(Advice::kSequential), 0);
    EXPECT_EQ(read(100 * kPage, kPage), static_cast<int64_t>(kPage));
    EXPECT_GE(prefetched(), 32u) << "a large window at the first read";
    // It ends with the file being closed.
    EXPECT_EQ(advise(Advice::kRandom), 0);
    EXPECT_TRUE(fs_.close(file_).ok());
    file_ = fs_.open(path_).value();
    const uint64_t before = prefetched();
    EXPECT_EQ(read(300 * kPage, kPage, kPage, 50), static_cast<int64_t>(50 * kPage));
    EXPECT_GT(prefetched(), before);
}

TEST_F(AdviceTest, StridesAreReadAheadFromTheFirstReadOn) {
    for (const int64_t step : {int64_t{8} * 4096, -int64_t{8} * 4096}) {
        create(2048, true);
        EXPECT_EQ(advise(Advice::kStrided, step, kPage), 0);
        const int64_t first = step > 0 ? 0 : static_cast<int64_t>(480 * kPage);
        EXPECT_EQ(read(first, kPage), static_cast<int64_t>(kPage));
        const uint64_t ahead = prefetched();
        EXPECT_GT(ahead, 0u) << step;
        EXPECT_EQ(read(first + step, kPage, step, ahead), static_cast<int64_t>(ahead * kPage));
        const FileSystemStatistics statistics = fs_.statistics();
        EXPECT_GE(statistics.pages.window_hits + statistics.pages.window_late, ahead) << step;
        EXPECT_EQ(statistics.pages.wasted, 0u) << step;
    }
    create(2048, true);
    EXPECT_EQ(advise(Advice::kStrided, kPage, kPage), 0) << "sequential";
    EXPECT_EQ(read(0, kPage), static_cast<int64_t>(kPage));
    EXPECT_GE(prefetched(), 32u);
}

TEST_F(AdviceTest, WhatIsNotReusedLeavesTheRestInTheCache) {
    const std::string other = make_file(2);
    for (const bool once : {false, true}) {
        create(1024, true);
        // Half of the cache, read twice over; then another file of as many pages, four times.
        const Descriptor kept = file_;
        EXPECT_EQ(read(0, 4 * kPage, 4 * kPage, kFilePages / 4), static_cast<int64_t>(kFileSize));
        const uint64_t first = served();
        for (unsigned i = 0; i < 4; ++i) {
            file_ = fs_.open(i % 2 == 0 ? other : make_file(3 + i)).value();
            EXPECT_EQ(advise(once ? Advice::kNoReuse : Advice::kNormal), 0);
            EXPECT_EQ(read(0, 4 * kPage, 4 * kPage, kFilePages / 4),
                      static_cast<int64_t>(kFileSize));
        }
        file_ = kept;
        EXPECT_EQ(advise(Advice::kRandom), 0);
        const uint64_t before = served();
        EXPECT_EQ(read(0, 4 * kPage, 4 * kPage, kFilePages / 4), static_cast<int64_t>(kFileSize));
        if (once) {
            EXPECT_EQ(served(), before) << "all of it is still there";
        } else {
            EXPECT_GT(served(), before) << "or the test shows nothing";
        }
        EXPECT_GE(first, kFilePages);
    }
}

// The counts of a file add up, whichever way its pages came.
TEST_F(AdviceTest, EachFileHasItsCounts) {
    const std::string path = make_file(9);
    for (const Replacement replacement : {Replacement::kRings, Replacement::kGlobalLra}) {
        create(4096, true, replacement);
        const Descriptor other = fs_.open(path).value();
        EXPECT_EQ(advise(Advice::kRandom), 0);
        EXPECT_EQ(read(0, 10 * kPage), static_cast<int64_t>(10 * kPage));
        EXPECT_EQ(read(5 * kPage + 1, kPage, 0, 3), static_cast<int64_t>(3 * kPage));
        EXPECT_EQ(advise(Advice::kWillNeed, 20 * kPage, 4 * kPage), 0);
        EXPECT_EQ(served(), 14u);
        EXPECT_EQ(read(19 * kPage, 6 * kPage), static_cast<int64_t>(6 * kPage));
        FileStatistics statistics = fs_.file_statistics(file_).value();
        EXPECT_EQ(statistics.pages, 10u + 6 + 6);
        EXPECT_EQ(statistics.misses, 10u + 2);
        EXPECT_EQ(statistics.hits, 6u + 4);
        EXPECT_EQ(statistics.advised, 4u);
        EXPECT_EQ(statistics.prefetched, 0u);
        EXPECT_GT(statistics.stalled_ns, 0u);
        EXPECT_EQ(fs_.file_statistics(other).value().pages, 0u);

        const Descriptor first = std::exchange(file_, other);
        EXPECT_EQ(read(0, kPage, kPage, 200), static_cast<int64_t>(200 * kPage));
        statistics = fs_.file_statistics(other).value();
        EXPECT_EQ(statistics.pages, 200u);
        EXPECT_GT(statistics.window_hits, 100u);
        EXPECT_EQ(
            statistics.hits + statistics.misses + statistics.window_hits + statistics.window_late,
            200u);
        EXPECT_LE(statistics.window_hits + statistics.window_late + statistics.wasted,
                  statistics.prefetched);
        EXPECT_EQ(fs_.file_statistics(first).value().pages, 22u);
        const FileSystemStatistics all = fs_.statistics();
        EXPECT_EQ(all.pages.prefetched, statistics.prefetched);
        EXPECT_EQ(all.pages.window_hits, statistics.window_hits);
        EXPECT_EQ(all.pages.window_late, statistics.window_late);
        EXPECT_TRUE(fs_.close(other).ok());
        EXPECT_EQ(fs_.file_statistics(other).status().error_number(), EBADF);
    }
}

// More files than a place has rows for.
TEST_F(AdviceTest, CountsOfManyFilesAreKept) {
    create(4096, true);
    std::vector<Descriptor> files;
    for (uint64_t seed = 100; seed < 120; ++seed)
        files.push_back(fs_.open(make_file(seed)).value());
    for (uint64_t round = 1; round <= 3; ++round) {
        for (size_t i = 0; i < files.size(); ++i) {
            file_ = files[i];
            const uint64_t pages = i + 1;
            EXPECT_EQ(read(0, pages * kPage), static_cast<int64_t>(pages * kPage));
            EXPECT_EQ(fs_.file_statistics(file_).value().pages, round * pages);
        }
    }
    for (size_t i = 0; i < files.size(); ++i) {
        const FileStatistics statistics = fs_.file_statistics(files[i]).value();
        EXPECT_EQ(statistics.pages, 3 * (i + 1));
        EXPECT_EQ(statistics.hits, 2 * (i + 1)) << "file " << i << ": there is room for all";
        EXPECT_EQ(
            statistics.hits + statistics.misses + statistics.window_hits + statistics.window_late,
            statistics.pages);
    }
}

TEST_F(AdviceTest, WhatMakesNoSenseIsRefused) {
    create(64, true);
    EXPECT_EQ(advise(Advice::kWillNeed, -1, 10), -EINVAL);
    EXPECT_EQ(advise(Advice::kNormal, -1, 10), -EINVAL);
    EXPECT_EQ(advise(static_cast<Advice>(7)), -EINVAL);
    EXPECT_EQ(advise(Advice::kStrided, 0, 10), -EINVAL);
    EXPECT_EQ(advise(Advice::kStrided, INT64_MIN, 10), -EINVAL);
    EXPECT_EQ(advise(Advice::kStrided, INT64_MAX, 10), -EINVAL);
    EXPECT_TRUE(fs_.close(file_).ok());
    for (const Advice advice :
         {Advice::kNormal, Advice::kSequential, Advice::kRandom, Advice::kWillNeed,
          Advice::kDontNeed, Advice::kNoReuse, Advice::kStrided}) {
        EXPECT_EQ(advise(advice, 4096, 4096), -EBADF);
        EXPECT_EQ(advise(advice, 4096, 4096, true), -EBADF);
    }
    EXPECT_EQ(served(), 0u);
}

}  // namespace
}  // namespace penstock
