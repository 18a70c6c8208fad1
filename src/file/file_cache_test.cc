// Goal: a file cache shows what was written last, whatever is evicted, written back, cut off or
// changed below meanwhile; and what was synced is in the file.
#include "penstock/file_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/prng.h"
#include "file/file_cache_fixture.h"
#include "testing/effort.h"

namespace penstock {
namespace {

TEST_F(FileCacheTest, ServesTheSecondReadWithoutStorage) {
    const std::string path = write_file("a", 100'000);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // else it may change unnoticed
    CachedFile file = open(path);
    EXPECT_EQ(read(file, 200'000, 0), bytes_of(path));
    const auto first = cache_.statistics();
    EXPECT_EQ(first.bytes_read, 100'000u);
    file = CachedFile();
    file = open(path);  // a closed file keeps its chunks
    EXPECT_EQ(read(file, 200'000, 0), bytes_of(path));
    EXPECT_EQ(cache_.statistics().bytes_read, 100'000u);
    EXPECT_EQ(cache_.statistics().allocations, 1u);
    EXPECT_TRUE(read(file, 10, 100'000).empty());
}

TEST_F(FileCacheTest, WritesAreSeenAtOnceAndStoredWhenSynced) {
    const std::string path = write_file("a", 50'000);
    CachedFile file = open(path), other = open(path);
    const auto before = bytes_of(path);
    const std::vector<std::byte> mark(10'000, std::byte{7});
    ASSERT_TRUE(file.write(mark.data(), mark.size(), 45'000).ok());
    EXPECT_EQ(read(other, 10'000, 45'000), mark);
    EXPECT_EQ(other.size(), 55'000u);
    EXPECT_EQ(bytes_of(path), before);
    ASSERT_TRUE(file.sync().ok());
    auto expected = before;
    expected.resize(45'000);
    expected.insert(expected.end(), mark.begin(), mark.end());
    EXPECT_EQ(bytes_of(path), expected);
    EXPECT_EQ(cache_.statistics().dirty_size, 0u);
}

TEST_F(FileCacheTest, WritesBackByItselfAfterAWhile) {
    make({.dirty_age = std::chrono::milliseconds(1)});
    const std::string path = write_file("a", 10'000);
    const CachedFile file = open(path);
    ASSERT_TRUE(file.write("new", 3, 5).ok());
    for (int i = 0; i < 1000 && std::memcmp(&bytes_of(path)[5], "new", 3) != 0; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(std::memcmp(&bytes_of(path)[5], "new", 3), 0);
}

TEST_F(FileCacheTest, AFileChangedBelowIsReadAnew) {
    const std::string path = write_file("a", 30'000);
    CachedFile file = open(path);
    (void)read(file, 30'000, 0);
    write_file("a", 40'000);
    file = open(path);
    EXPECT_EQ(read(file, 50'000, 0), bytes_of(path));
}

TEST_F(FileCacheTest, ARefreshStoresWhatWasWrittenAndReadsStorageAgain) {
    const std::string path = write_file("a", 10 * kChunk);
    const CachedFile file = open(path);
    Bytes expected = read(file, 10 * kChunk, 0);
    const uint64_t version = file.version(), before = cache_.statistics().bytes_read;
    ASSERT_TRUE(file.write("new", 3, kChunk + 5).ok());
    ASSERT_TRUE(file.refresh().ok());
    std::memcpy(&expected[kChunk + 5], "new", 3);
    EXPECT_EQ(bytes_of(path), expected);
    EXPECT_NE(file.version(), version);
    EXPECT_EQ(cache_.statistics().clean_size, 0u);
    EXPECT_EQ(read(file, 10 * kChunk, 0), expected);
    EXPECT_EQ(cache_.statistics().bytes_read - before, 10 * kChunk);
}

TEST_F(FileCacheTest, ARefreshBesideWritesLosesNone) {
    make({.dirty_age = std::chrono::milliseconds(1)});
    const std::string path = write_file("a", 64 * kChunk);
    const CachedFile file = open(path);
    Bytes expected = bytes_of(path);
    std::atomic<bool> ended = false;
    std::thread writer([&] {
        base::Prng prng(7);
        for (int step = 0; step < 20'000; ++step) {
            const uint64_t size = prng.below(2 * kChunk) + 1;
            const uint64_t offset = prng.below(expected.size() - size);
            std::fill_n(&expected[offset], size, static_cast<std::byte>(prng.below(256)));
            if (!file.write(&expected[offset], size, offset).ok()) break;
        }
        ended = true;
    });
    int refreshed = 0;
    while (!ended) {
        const Status status = file.refresh();
        refreshed += status.ok() ? 1 : 0;
        EXPECT_TRUE(status.ok() || status.error_number() == EBUSY) << status.message();
    }
    writer.join();
    EXPECT_GT(refreshed, 0);
    EXPECT_EQ(read(file, expected.size(), 0), expected);
    ASSERT_TRUE(file.sync().ok());
    EXPECT_EQ(bytes_of(path), expected);
}

TEST_F(FileCacheTest, ReadsMoreThanItHoldsAndWritesMoreThanMayBeDirty) {
    const std::string path = write_file("a", 3 * kCacheSize + 123);
    const CachedFile file = open(path);
    EXPECT_EQ(read(file, 4 * kCacheSize, 0), bytes_of(path));
    std::vector<std::byte> bytes(2 * kCacheSize);
    testing::fill_randomly(bytes.data(), bytes.size(), 3);
    ASSERT_TRUE(file.write(bytes.data(), bytes.size(), 1000).ok());
    EXPECT_LE(cache_.statistics().dirty_size, kCacheSize / 4 + kChunk);
    EXPECT_EQ(read(file, bytes.size(), 1000), bytes);
    EXPECT_EQ(cache_.statistics().allocations, 1u);
}

TEST_F(FileCacheTest, HalfOfTheDirtyLimitIsWrittenBackWithoutBeingAskedFor) {
    make({.dirty_age = std::chrono::hours(1)});
    const std::string path = write_file("a", 0);
    const CachedFile file = open(path);
    const std::vector<std::byte> bytes(kCacheSize / 4, std::byte{7});  // the limit
    ASSERT_EQ(file.write(bytes.data(), bytes.size() / 2, 0).value(), bytes.size() / 2);
    const uint64_t kept = cache_.statistics().dirty_size;
    EXPECT_EQ(kept, bytes.size() / 2);
    ASSERT_TRUE(file.write(bytes.data(), bytes.size() / 2, bytes.size() / 2).ok());
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (cache_.statistics().dirty_size > kept && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_LE(cache_.statistics().dirty_size, kept);
    EXPECT_GT(cache_.statistics().dirty_size, 0u);  // the rest may still change
}

TEST_F(FileCacheTest, AWriteOnlyFileNeedsNoReading) {
    const std::string path = write_file("a", 20'000);
    auto expected = bytes_of(path);
    const CachedFile file = open(path, O_WRONLY);
    std::vector<std::byte> buffer(10);
    EXPECT_EQ(file.read(buffer.data(), 10, 0).status().error_number(), EBADF);
    ASSERT_TRUE(file.write("middle", 6, 7000).ok());
    ASSERT_TRUE(file.sync().ok());
    std::memcpy(&expected[7000], "middle", 6);
    EXPECT_EQ(bytes_of(path), expected);
    EXPECT_EQ(open(path, O_RDONLY).write("x", 1, 0).status().error_number(), EBADF);
}

TEST_F(FileCacheTest, ClosesTheDescriptorWithTheLastCopy) {
    const std::string path = write_file("a", 10'000);
    const auto count = [] {
        const std::filesystem::directory_iterator open("/proc/self/fd");
        return std::distance(begin(open), end(open));
    };
    const auto before = count();
    {
        const CachedFile file = open(path), copy = file, other = open(path, O_RDONLY);
        ASSERT_TRUE(file.write("x", 1, 0).ok());
        EXPECT_GT(count(), before);
    }
    EXPECT_EQ(count(), before);
}

struct stat described(const FileCache& cache, const std::string& path) {
    struct stat state {};
    const int descriptor = ::open(path.c_str(), O_PATH);
    EXPECT_TRUE(cache.stat(descriptor, &state).ok());
    ::close(descriptor);
    return state;
}
bool same_times(const struct stat& a, const struct stat& b) {
    const auto same = [](timespec one, timespec other) {
        return one.tv_sec == other.tv_sec && one.tv_nsec == other.tv_nsec;
    };
    return same(a.st_mtim, b.st_mtim) && same(a.st_ctim, b.st_ctim);
}

TEST_F(FileCacheTest, TellsTheSizeAndTimeOfTheLastWriteBeforeAndAfterItIsWrittenBack) {
    const std::string path = write_file("a", 10'000);
    const CachedFile file = open(path);
    timespec begin{};
    clock_gettime(CLOCK_REALTIME_COARSE, &begin);
    ASSERT_TRUE(file.write("new", 3, 20'000).ok());
    const struct stat dirty = described(cache_, path);
    EXPECT_EQ(dirty.st_size, 20'003);
    EXPECT_GE(dirty.st_mtim.tv_sec * 1'000'000'000 + dirty.st_mtim.tv_nsec,
              begin.tv_sec * 1'000'000'000 + begin.tv_nsec);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ASSERT_TRUE(file.flush().ok());
    EXPECT_TRUE(same_times(described(cache_, path), dirty));
    struct stat below {};
    ASSERT_EQ(::stat(path.c_str(), &below), 0);
    EXPECT_EQ(below.st_mtim.tv_nsec, dirty.st_mtim.tv_nsec);
    EXPECT_EQ(below.st_size, 20'003);
    // Another program's change is told.
    write_file("a", 5'000);
    EXPECT_EQ(described(cache_, path).st_size, 5'000);
    EXPECT_EQ(file.size(), 5'000u);
}

TEST_F(FileCacheTest, ATimeThatWasSetOutlivesTheWriteBack) {
    const std::string path = write_file("a", 10'000);
    const CachedFile file = open(path);
    ASSERT_TRUE(file.write("new", 3, 0).ok());
    const timespec times[] = {{1'000, 0}, {-5, 500}};
    const int descriptor = ::open(path.c_str(), O_RDONLY);
    EXPECT_TRUE(cache_.change(descriptor, true, [&] { return futimens(descriptor, times); }).ok());
    ::close(descriptor);
    EXPECT_EQ(described(cache_, path).st_mtim.tv_sec, -5);
    ASSERT_TRUE(file.flush().ok());
    struct stat below {};
    ASSERT_EQ(::stat(path.c_str(), &below), 0);
    EXPECT_EQ(below.st_mtim.tv_sec, -5);
    EXPECT_EQ(below.st_mtim.tv_nsec, 500);
}

TEST_F(FileCacheTest, ChangedAttributesKeepTheChunks) {
    const std::string path = write_file("a", 10'000);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // else it may change unnoticed
    CachedFile file = open(path);
    (void)read(file, 10'000, 0);
    const uint64_t version = file.version();
    const int descriptor = ::open(path.c_str(), O_PATH);
    EXPECT_TRUE(cache_.change(descriptor, false, [&] { return chmod(path.c_str(), 0640); }).ok());
    EXPECT_EQ(cache_.change(descriptor, false, [] { return EPERM; }).error_number(), EPERM);
    file = CachedFile();
    file = open(path);
    EXPECT_EQ(read(file, 10'000, 0), bytes_of(path));
    EXPECT_EQ(cache_.statistics().bytes_read, 10'000u);
    EXPECT_EQ(file.version(), version);
    // But not after another program's change of the bytes.
    write_file("a", 10'000);
    EXPECT_TRUE(cache_.change(descriptor, false, [&] { return chmod(path.c_str(), 0600); }).ok());
    ::close(descriptor);
    file = open(path);
    EXPECT_EQ(read(file, 10'000, 0), bytes_of(path));
    EXPECT_EQ(cache_.statistics().bytes_read, 20'000u);
    EXPECT_NE(file.version(), version);
}

TEST_F(FileCacheTest, ACloseMayLeaveTheWriteBackForLater) {
    make({.write_on_close = false});
    const std::string path = write_file("a", 10'000);
    const auto before = bytes_of(path);
    ASSERT_TRUE(open(path).write("new", 3, 0).ok());
    EXPECT_EQ(bytes_of(path), before);
    EXPECT_EQ(std::memcmp(read(open(path, O_RDONLY), 3, 0).data(), "new", 3), 0);
    EXPECT_TRUE(cache_.flush().ok());
    EXPECT_EQ(cache_.statistics().dirty_size, 0u);
    EXPECT_EQ(std::memcmp(bytes_of(path).data(), "new", 3), 0);
}

TEST_F(FileCacheTest, ManyClosedFilesWaitForTheirWriteBack) {
    constexpr int kFiles = 1500;
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlimit most{limit.rlim_max, limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &most), 0);
    if (most.rlim_cur < 8 * kFiles) GTEST_SKIP() << "the process may have few descriptors";
    make({.size = 2 * kCacheSize,
          .dirty_size_max = 4 * kCacheSize,
          .dirty_age = std::chrono::hours(1),
          .write_on_close = false});
    std::vector<std::string> paths;
    for (int i = 0; i < kFiles; ++i) {
        paths.push_back(write_file(std::to_string(i).c_str(), 4));
        ASSERT_TRUE(open(paths.back()).write("new", 3, 0).ok());
    }
    EXPECT_EQ(cache_.statistics().bytes_written, 0u);
    EXPECT_TRUE(cache_.flush().ok());
    for (const std::string& path : paths)
        EXPECT_EQ(std::memcmp(bytes_of(path).data(), "new", 3), 0);
    setrlimit(RLIMIT_NOFILE, &limit);
}

TEST_F(FileCacheTest, NeverWritesWhatHasNoNameLeft) {
    make({.write_on_close = false});
    std::string path = write_file("a", 10'000);
    const auto remove = [&] {
        const int descriptor = ::open(path.c_str(), O_PATH);
        EXPECT_TRUE(cache_.change(descriptor, false, [&] { return unlink(path.c_str()); }).ok());
        ::close(descriptor);
    };
    ASSERT_TRUE(open(path).write("new", 3, 0).ok());
    remove();
    EXPECT_EQ(cache_.statistics().dirty_size, 0u);
    path = write_file("a", 10'000);
    CachedFile file = open(path);
    ASSERT_TRUE(file.write("new", 3, 0).ok());
    remove();
    EXPECT_EQ(std::memcmp(read(file, 3, 0).data(), "new", 3), 0);
    file = CachedFile();
    EXPECT_EQ(cache_.statistics().dirty_size, 0u);
    EXPECT_TRUE(cache_.flush().ok());
    EXPECT_EQ(cache_.statistics().bytes_written, 0u);
}

TEST_F(FileCacheTest, AllocatesAndPunchesHoles) {
    const std::string path = write_file("a", 20'000);
    auto expected = bytes_of(path);
    const CachedFile file = open(path);
    ASSERT_TRUE(file.write("new", 3, 1'000).ok());
    std::memcpy(&expected[1'000], "new", 3);
    const Status status = file.allocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4'000, 9'000);
    if (status.error_number() == EOPNOTSUPP) GTEST_SKIP() << "no holes in this file system";
    ASSERT_TRUE(status.ok()) << status.message();
    std::fill_n(expected.begin() + 4'000, 9'000, std::byte{0});
    EXPECT_EQ(read(file, 20'000, 0), expected);
    ASSERT_TRUE(file.allocate(0, 10'000, 20'000).ok());
    EXPECT_EQ(file.size(), 30'000u);
    expected.resize(30'000);
    EXPECT_EQ(read(file, 40'000, 0), expected);
    EXPECT_EQ(file.allocate(0, 0, 0).error_number(), EINVAL);
}

// RLIMIT_FSIZE stands for a disk that is full.
TEST_F(FileCacheTest, AFullDiskIsToldOnceAndLosesNothing) {
    const std::string path = write_file("a", 10'000);
    const CachedFile file = open(path);
    ASSERT_TRUE(file.write("kept", 4, 60'000).ok());
    {
        const FileSizeLimit limit(20'000);
        EXPECT_EQ(file.flush().error_number(), EFBIG);
        EXPECT_TRUE(file.take_error().ok());
        EXPECT_EQ(cache_.flush().error_number(), EFBIG);
        EXPECT_EQ(file.take_error().error_number(), EFBIG);
        EXPECT_TRUE(file.take_error().ok());
        EXPECT_EQ(std::memcmp(read(file, 4, 60'000).data(), "kept", 4), 0);
    }
    EXPECT_TRUE(file.sync().ok());
    EXPECT_EQ(bytes_of(path).size(), 60'004u);
    EXPECT_EQ(std::memcmp(&bytes_of(path)[60'000], "kept", 4), 0);
}

// As Linux does since 4.13: one that closes or syncs first takes the error from nobody.
TEST_F(FileCacheTest, EachHandleIsToldOnceOfAFailedWriteBack) {
    const std::string path = write_file("a", 10'000);
    const CachedFile writer = open(path), other = open(path), reader = open(path, O_RDONLY);
    CachedFile closed = open(path);
    ASSERT_TRUE(writer.write("kept", 4, 60'000).ok());
    {
        const FileSizeLimit limit(20'000);
        EXPECT_EQ(cache_.flush().error_number(), EFBIG);
    }
    const CachedFile late = open(path);  // before any handle was told
    EXPECT_EQ(late.sync().error_number(), EFBIG);
    const CachedFile later = open(path);
    EXPECT_TRUE(later.sync().ok());
    EXPECT_EQ(closed.finish().error_number(), EFBIG);
    EXPECT_TRUE(closed.finish().ok());
    closed = CachedFile();
    for (const CachedFile* file : {&writer, &other, &reader}) {
        EXPECT_EQ(file->sync().error_number(), EFBIG);
        EXPECT_TRUE(file->sync().ok());
        EXPECT_TRUE(file->take_error().ok());
    }
    const CachedFile copy = other;
    ASSERT_TRUE(copy.write("more", 4, 60'000).ok());
    {
        const FileSizeLimit limit(20'000);
        EXPECT_EQ(copy.sync().error_number(), EFBIG);
        EXPECT_TRUE(other.take_error().ok());  // it is the same handle
        EXPECT_EQ(writer.take_error().error_number(), EFBIG);
        EXPECT_EQ(later.take_error().error_number(), EFBIG);
    }
    EXPECT_TRUE(writer.sync().ok());
    uint64_t told = 0;  // of a handle that is kept elsewhere
    EXPECT_EQ(writer.finish(&told).error_number(), EFBIG);
    EXPECT_TRUE(writer.sync(false, &told).ok());
}

// Each file fails when it has brought less than the limit of dirty bytes, so that many together
// took all memory.
TEST_F(FileCacheTest, FilesThatCannotBeWrittenDoNotTakeAllMemory) {
    constexpr uint64_t kFailedMax = kCacheSize / 8, kOwn = 60 * kChunk;
    const auto bytes = some_bytes(kOwn, 1);
    const std::string good = write_file("good", 100);
    const CachedFile file = open(good);
    std::vector<CachedFile> files;
    for (int i = 0; i < 12; ++i) {
        files.push_back(open(write_file(("bad" + std::to_string(i)).c_str(), 100)));
        ASSERT_EQ(files.back().write(bytes.data(), kOwn, 60'000).value(), kOwn);
        const FileSizeLimit limit(20'000);
        (void)cache_.flush();
        EXPECT_LE(cache_.statistics().dirty_size, kFailedMax + kOwn + kChunk);
    }
    const FileSizeLimit limit(20'000);
    EXPECT_GE(cache_.statistics().dirty_size, kFailedMax);
    EXPECT_EQ(files[0].write("x", 1, 60'000).status().error_number(), EFBIG);
    for (uint64_t i = 0; i < 200; ++i) ASSERT_TRUE(file.write("good", 4, i * 50).ok());
    EXPECT_EQ(std::memcmp(read(file, 4, 9'950).data(), "good", 4), 0);
    const FileCacheStatistics before = cache_.statistics();
    EXPECT_EQ(std::memcmp(read(file, 4, 9'950).data(), "good", 4), 0);
    EXPECT_EQ(cache_.statistics().hits, before.hits + 1);
}

TEST_F(FileCacheTest, SparseBytesOfOneFileHoldUpNoOther) {
    const std::string sparse = write_file("sparse", 100), good = write_file("good", 100);
    const CachedFile bad = open(sparse), file = open(good);
    EXPECT_EQ(bad.write("x", 1, uint64_t{1} << 61).status().error_number(), EFBIG);
    EXPECT_EQ(bad.write("x", 1, (uint64_t{1} << 62) + 1).status().error_number(), EFBIG);
    EXPECT_EQ(cache_.statistics().dirty_size, 0u);
    int refused = 0;
    for (uint64_t i = 0; i < 256; ++i) {
        const FileSizeLimit limit(20'000);
        if (bad.write("x", 1, 100'000 + i * 10 * kChunk).status().error_number() == EFBIG)
            ++refused;
        (void)cache_.flush();
        ASSERT_TRUE(file.write("good", 4, i).ok());
    }
    EXPECT_LE(cache_.statistics().dirty_size, kCacheSize / 8);
    EXPECT_GE(refused, 256 - 33);
    EXPECT_TRUE(file.sync().ok());
}

// Without a queue of their own each of them would take a turn of `dirty_age`.
TEST_F(FileCacheTest, FilesThatCannotBeWrittenDelayNoOther) {
    constexpr int kBad = 8;
    std::mutex mutex;
    std::vector<std::pair<std::string, int>> told;
    make({.dirty_age = std::chrono::milliseconds(1000),
          .write_failed = [&](const std::string& path, const Status& status) {
              const std::lock_guard lock(mutex);
              told.emplace_back(path, status.error_number());
          }});
    std::vector<std::string> paths;
    std::vector<CachedFile> files;
    for (int i = 0; i < kBad; ++i) {
        paths.push_back(write_file(("bad" + std::to_string(i)).c_str(), 100));
        files.push_back(open(paths.back()));
    }
    const std::string good = write_file("good", 100);
    const CachedFile file = open(good);
    const auto wait_for = [&](const std::function<bool()>& done) {
        for (int i = 0; i < 1000 && !done(); ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        EXPECT_TRUE(done());
    };
    for (const CachedFile& bad : files) ASSERT_TRUE(bad.write("kept", 4, 60'000).ok());
    {
        const FileSizeLimit limit(20'000);
        ASSERT_TRUE(file.write("good", 4, 0).ok());
        const auto begin = std::chrono::steady_clock::now();
        wait_for([&] { return std::memcmp(bytes_of(good).data(), "good", 4) == 0; });
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(kBad / 2));
        wait_for([&] { return cache_.statistics().failing_count == kBad; });
        const FileCacheStatistics now = cache_.statistics();
        ASSERT_EQ(now.failing.size(), kBad);
        EXPECT_NE(std::ranges::find(paths, now.failing[0].path), paths.end());
        EXPECT_NE(now.failing[0].error.find("File too large"), std::string::npos);
        EXPECT_EQ(now.failing[0].dirty_size, kChunk);
        EXPECT_GE(now.dirty_age_ms, now.failing[0].dirty_age_ms);
        EXPECT_GE(now.failing[0].dirty_age_ms, 1000u);
        EXPECT_EQ(cache_.flush().error_number(), EFBIG);
    }
    wait_for([&] { return cache_.statistics().dirty_size == 0; });
    EXPECT_EQ(cache_.statistics().failing_count, 0u);
    EXPECT_EQ(cache_.statistics().dirty_age_ms, 0u);
    for (const std::string& path : paths) {
        EXPECT_EQ(std::memcmp(&bytes_of(path)[60'000], "kept", 4), 0);
        const std::lock_guard lock(mutex);
        EXPECT_EQ(std::ranges::count(told, std::pair(path, EFBIG)), 1);
        EXPECT_EQ(std::ranges::count(told, std::pair(path, 0)), 1);
    }
}

TEST_F(FileCacheTest, BytesThatCannotBeWrittenStopNoOtherWriter) {
    make({.dirty_size_max = 64 * kChunk, .dirty_age = std::chrono::hours(1)});
    const std::string path = write_file("bad", 100), other = write_file("good", 100);
    const CachedFile bad = open(path), good = open(other);
    const Bytes bytes = some_bytes(400 * kChunk, 1);
    constexpr uint64_t kFar = 1 << 24;
    {
        const FileSizeLimit limit(kFar);
        uint64_t done = 0;  // of the first file
        Status status;
        for (; status.ok() && done < bytes.size(); done += kChunk)
            status = bad.write(&bytes[done], kChunk, kFar + done).status();
        EXPECT_EQ(status.error_number(), EFBIG);
        EXPECT_LE(done, 130 * kChunk);
        ASSERT_EQ(good.write(bytes.data(), bytes.size(), 0).value(), bytes.size());
        EXPECT_TRUE(good.sync().ok());
        EXPECT_EQ(bytes_of(other), bytes);
        EXPECT_EQ(read(bad, kChunk, kFar), Bytes(bytes.begin(), bytes.begin() + kChunk));
        ASSERT_TRUE(bad.truncate(0).ok());
        EXPECT_EQ(cache_.statistics().failing_count, 0u);
    }
    ASSERT_TRUE(bad.write("kept", 4, 0).ok());
    EXPECT_TRUE(bad.sync().ok() || bad.sync().ok());  // the first may tell of what was cut off
    EXPECT_EQ(bytes_of(path).size(), 4u);
}

// Where they may take all memory, writes of other files go to storage at once.
TEST_F(FileCacheTest, AMemoryFullOfWhatCannotBeWrittenStopsNoOtherWriter) {
    make({.dirty_size_max = kCacheSize, .dirty_age = std::chrono::hours(1)});
    const std::string path = write_file("bad", 100), other = write_file("good", 100);
    const CachedFile bad = open(path), good = open(other);
    const Bytes bytes = some_bytes(40 * kChunk + 77, 1);
    constexpr uint64_t kFar = 1 << 24;
    const FileSizeLimit limit(kFar);
    Status status;
    for (uint64_t i = 0; status.ok() && i < 2000; ++i)
        status = bad.write(bytes.data(), kChunk, kFar + i * kChunk).status();
    EXPECT_EQ(status.error_number(), EFBIG);
    ASSERT_EQ(good.write(bytes.data(), bytes.size(), 0).value(), bytes.size());
    EXPECT_EQ(read(good, bytes.size(), 0), bytes);
    EXPECT_TRUE(good.sync().ok());
    EXPECT_EQ(bytes_of(other), bytes);
    ASSERT_TRUE(bad.truncate(0).ok());
}

TEST_F(FileCacheTest, RefusesWhatItCannotBe) {
    EXPECT_EQ(FileCache::create({}).status().error_number(), EINVAL);
    EXPECT_EQ(FileCache::create({.devices = {device_}, .size = 1 << 20}).status().error_number(),
              EINVAL);
    EXPECT_EQ(FileCache::create({.devices = {device_}, .size = uint64_t{1} << 40})
                  .status()
                  .error_number(),
              ENOMEM);
    EXPECT_EQ(FileCache::create({.devices = {device_}, .chunk_size = 5000}).status().error_number(),
              EINVAL);
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    EXPECT_EQ(cache_.adopt(ends[0]).status().error_number(), ESPIPE);
    EXPECT_EQ(fcntl(ends[0], F_GETFD), -1);  // it is closed on an error too
    ::close(ends[1]);
    EXPECT_EQ(cache_.adopt(-1).status().error_number(), EBADF);
}

// Random calls on a file of a few caches' size against flat bytes.
TEST_F(FileCacheTest, RandomCallsEqualFlatBytes) {
    constexpr uint64_t kSizeMax = kCacheSize + kCacheSize / 2;
    for (uint64_t seed = 0; seed < testing::effort(3, 1, 200); ++seed) {
        base::Prng prng(seed);
        make({.dirty_age = std::chrono::milliseconds(seed % 2 == 0 ? 1 : 100'000)});
        const std::string path = write_file("a", prng.below(kSizeMax));
        FlatFile file{open(path), bytes_of(path)};
        for (int step = 0; step < 300; ++step) {
            SCOPED_TRACE("seed " + std::to_string(seed) + " step " + std::to_string(step));
            const uint64_t offset = prng.below(kSizeMax);
            const uint64_t size = prng.below(prng.below(8) == 0 ? kCacheSize / 2 : 3 * kChunk) + 1;
            switch (prng.below(8)) {
                case 0:
                    file.truncate(offset);
                    break;
                case 1:
                    ASSERT_TRUE(file.file.sync(prng.below(2) == 0).ok());
                    ASSERT_EQ(bytes_of(path), file.flat);
                    break;
                case 2:
                    file.file = CachedFile();
                    file.file = open(path);
                    break;
                case 3:
                case 4:
                case 5:
                    file.write(size, offset, prng.next());
                    break;
                default:
                    file.expect_read(size, offset);
            }
            ASSERT_EQ(file.file.size(), file.flat.size());
            if (HasFatalFailure()) return;
        }
    }
}

// Each thread has pieces of its own in every chunk; all read, write and sync at once.
TEST_F(FileCacheTest, ThreadsThatShareChunksKeepTheirBytes) {
    constexpr uint64_t kPieces = 4 * kCacheSize / kPiece / 3;
    const std::string path = write_file("a", kPieces * kPiece);
    const auto then = [&](base::Prng& prng, CachedFile& file) {
        if (prng.below(200) == 0) {
            EXPECT_TRUE(file.flush().ok());
        }
        // An open looks at the file while others write it back.
        if (prng.below(100) == 0) file = open(path);
    };
    const Bytes expected = use_pieces_at_once(path, kPieces, testing::effort(3000, 500, 100'000), 2,
                                              then);
    EXPECT_TRUE(open(path).sync().ok());
    EXPECT_EQ(bytes_of(path), expected);
}

// A write-back lengthens the file below while chunks before it are read: what was read of a hole is
// zeros, whatever the memory had before.
TEST_F(FileCacheTest, HolesBeforeAWriteBackAreZeros) {
    constexpr uint64_t kHole = 60 * kChunk, kOthers = 2 * kCacheSize / kChunk;
    constexpr uint64_t kUsesPerRound = 200;
    const CachedFile other = open(write_file("other", 2 * kCacheSize));
    const CachedFile file = open(write_file("a", 0));
    const Bytes bytes(kChunk, std::byte{1});
    base::Prng prng(41);
    const uint64_t rounds = testing::effort(300, 30, 20'000);
    for (uint64_t round = 0; round < rounds; ++round) {
        ASSERT_TRUE(file.truncate(0).ok());
        // Neighbours in the file get memory that other bytes were in, here and there.
        for (uint64_t i = 0; i < kUsesPerRound; ++i)
            (void)read(other, 1, prng.below(kOthers) * kChunk);
        ASSERT_TRUE(file.write(bytes.data(), bytes.size(), kHole).ok());
        std::thread writer([&] { EXPECT_TRUE(file.flush().ok()); });
        const Bytes hole = read(file, kHole, 0);
        writer.join();
        ASSERT_EQ(hole, Bytes(kHole)) << "round " << round;
    }
}

}  // namespace
}  // namespace penstock
