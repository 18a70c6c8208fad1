// Goal: what memory has lost comes from the tier instead of storage, never older than the file; and
// an error of the tier only ends its use.
#include "file/fast_tier.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/prng.h"
#include "file/file_cache_fixture.h"
#include "testing/effort.h"

namespace penstock {
namespace {

class FastTierTest : public FileCacheTest {
protected:
    static constexpr uint64_t kTierSize = 2 * kCacheSize;

    void make_with_tier(FileCacheOptions options = {}) {
        options.tier = folder_;
        if (options.tier_size == 0) options.tier_size = kTierSize;
        options.tier_failed = [this](const Status& status) {
            const std::lock_guard lock(mutex_);
            failures_.push_back(status);
        };
        make(std::move(options));
    }
    // Reads all of a file until the tier holds it: a pass may leave chunks out while others wait.
    void fill_tier(const CachedFile& file, uint64_t size) {
        const uint64_t whole = (size + kChunk - 1) / kChunk * kChunk;
        for (int i = 0; i < 1000 && cache_.statistics().tier_used_size < whole; ++i) {
            (void)read(file, size, 0);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        EXPECT_EQ(cache_.statistics().tier_used_size, whole);
    }
    // Returns the descriptors of this process that stand for a file of this size without a name.
    static std::vector<int> tier_descriptors(uint64_t size) {
        std::vector<int> found;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            const int descriptor = std::stoi(entry.path().filename());
            struct stat state {};
            if (fstat(descriptor, &state) == 0 && state.st_nlink == 0 && S_ISREG(state.st_mode) &&
                static_cast<uint64_t>(state.st_size) == size)
                found.push_back(descriptor);
        }
        return found;
    }

    std::mutex mutex_;
    std::vector<Status> failures_;
};

TEST_F(FastTierTest, ASecondPassOverMoreThanMemoryComesFromTheTier) {
    make_with_tier();
    constexpr uint64_t kSize = kTierSize - 5'000;
    const std::string path = write_file("a", kSize);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // else it may change unnoticed
    CachedFile file = open(path);
    fill_tier(file, kSize);
    file = CachedFile();
    file = open(path);
    const auto before = cache_.statistics();
    EXPECT_EQ(read(file, kSize, 0), bytes_of(path));
    const auto after = cache_.statistics();
    EXPECT_EQ(after.bytes_read, before.bytes_read);
    EXPECT_GE(after.tier_bytes_read - before.tier_bytes_read, kTierSize - kCacheSize);
    EXPECT_EQ(after.tier_size, kTierSize);
    EXPECT_EQ(after.tier_error, "");
    // Nothing is left behind, nor seen meanwhile.
    EXPECT_EQ(tier_descriptors(kTierSize).empty(), false);
    unlink(path.c_str());
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(FastTierTest, AFileChangedBelowIsReadFromStorage) {
    make_with_tier();
    const std::string path = write_file("a", kTierSize);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CachedFile file = open(path);
    fill_tier(file, kTierSize);
    write_file("a", kTierSize - 1);
    file = open(path);
    EXPECT_EQ(cache_.statistics().tier_used_size, 0u);
    EXPECT_EQ(read(file, kTierSize, 0), bytes_of(path));
}

TEST_F(FastTierTest, WhatIsCutOffOrWrittenPastTheCacheIsNotSeenAgain) {
    make_with_tier();
    const std::string path = write_file("a", kTierSize);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CachedFile file = open(path);
    fill_tier(file, kTierSize);
    (void)read(file, kTierSize, 0);  // the first chunks are in the tier alone
    auto expected = bytes_of(path);
    file = CachedFile();
    file = open(path, O_WRONLY);  // which may not read the rest of a chunk
    std::memcpy(&expected[1'000], "new", 3);
    ASSERT_TRUE(file.write("new", 3, 1'000).ok());
    EXPECT_EQ(cache_.statistics().bytes_bypassed, 3u);
    file = open(path);
    EXPECT_EQ(read(file, kTierSize, 0), expected);
    ASSERT_TRUE(file.truncate(kChunk + 5).ok());
    ASSERT_TRUE(file.truncate(kTierSize).ok());
    std::fill(expected.begin() + kChunk + 5, expected.end(), std::byte{0});
    EXPECT_EQ(read(file, kTierSize, 0), expected);
}

// As FileCacheTest.RandomCallsEqualFlatBytes, with a tier that is smaller than the file, and with
// changes of the file below.
TEST_F(FastTierTest, RandomCallsEqualFlatBytes) {
    constexpr uint64_t kSizeMax = 3 * kCacheSize;
    uint64_t from_tier = 0;
    for (uint64_t seed = 0; seed < testing::effort(2, 1, 200); ++seed) {
        base::Prng prng(seed);
        make_with_tier({.dirty_age = std::chrono::milliseconds(seed % 2 == 0 ? 1 : 100'000)});
        const std::string path = write_file("a", prng.below(kSizeMax));
        FlatFile file{open(path), bytes_of(path)};
        for (int step = 0; step < 400; ++step) {
            SCOPED_TRACE("seed " + std::to_string(seed) + " step " + std::to_string(step));
            const uint64_t offset = prng.below(kSizeMax);
            const uint64_t size = prng.below(prng.below(4) == 0 ? kCacheSize : 3 * kChunk) + 1;
            switch (prng.below(16)) {
                case 0:
                    file.truncate(offset);
                    break;
                case 1:
                    ASSERT_TRUE(file.file.flush().ok());
                    break;
                case 2: {
                    ASSERT_TRUE(file.file.flush().ok());
                    const int below = ::open(path.c_str(), O_WRONLY);
                    const uint64_t mark = prng.next();
                    file.flat.resize(std::max(file.flat.size(), offset + sizeof mark));
                    std::memcpy(&file.flat[offset], &mark, sizeof mark);
                    ASSERT_EQ(pwrite(below, &mark, sizeof mark, static_cast<off_t>(offset)),
                              static_cast<ssize_t>(sizeof mark));
                    ::close(below);
                    ASSERT_TRUE(file.file.revalidate().ok());
                    break;
                }
                case 3: {
                    const Status status = file.file.allocate(
                        FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, size);
                    if (!status.ok()) break;  // no holes in this file system
                    const auto end = std::min<uint64_t>(offset + size, file.flat.size());
                    for (uint64_t at = offset; at < end; ++at) file.flat[at] = std::byte{0};
                    break;
                }
                case 4:
                case 5:
                case 6:
                    file.write(size, offset, prng.next());
                    break;
                default:
                    file.expect_read(size, offset);
            }
            ASSERT_EQ(file.file.size(), file.flat.size());
            if (HasFatalFailure()) return;
        }
        from_tier += cache_.statistics().tier_bytes_read;
        EXPECT_EQ(cache_.statistics().tier_error, "");
    }
    EXPECT_GT(from_tier, 0u);
}

// Each thread has pieces of its own in every chunk; all read, write and cut at once.
TEST_F(FastTierTest, ThreadsThatShareChunksKeepTheirBytes) {
    make_with_tier({.dirty_age = std::chrono::milliseconds(1)});
    constexpr uint64_t kPieces = 4 * kCacheSize / kPiece / 3;
    const std::string path = write_file("a", kPieces * kPiece);
    const auto then = [](base::Prng& prng, const CachedFile& file) {
        if (prng.below(200) == 0) {
            EXPECT_TRUE(file.flush().ok());
        }
    };
    const Bytes expected = use_pieces_at_once(path, kPieces, testing::effort(3000, 500, 100'000), 3,
                                              then);
    EXPECT_GT(cache_.statistics().tier_bytes_read, 0u);
    EXPECT_TRUE(open(path).sync().ok());
    EXPECT_EQ(bytes_of(path), expected);
}

TEST_F(FastTierTest, AnErrorOfAReadIsToldOnceAndStorageIsRead) {
    make_with_tier();
    const std::string path = write_file("a", kTierSize);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const CachedFile file = open(path);
    fill_tier(file, kTierSize);
    ASSERT_EQ(ftruncate(tier_descriptors(kTierSize).front(), 0), 0);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(read(file, kTierSize, 0), bytes_of(path));
    EXPECT_EQ(failures_.size(), 1u);
    EXPECT_NE(cache_.statistics().tier_error.find("tier: Input/output error"), std::string::npos);
    EXPECT_EQ(cache_.statistics().tier_used_size, 0u);
}

// RLIMIT_FSIZE stands for a disk that is full after all.
TEST_F(FastTierTest, AnErrorOfACopyIsToldOnceAndStorageIsRead) {
    make_with_tier();
    const std::string path = write_file("a", kTierSize);
    const auto expected = bytes_of(path);
    const CachedFile file = open(path);
    {
        const FileSizeLimit limit(20'000);
        for (int i = 0; i < 1000 && cache_.statistics().tier_error.empty(); ++i) {
            EXPECT_EQ(read(file, kTierSize, 0), expected);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        EXPECT_EQ(read(file, kTierSize, 0), expected);
    }
    EXPECT_NE(cache_.statistics().tier_error, "");
    cache_ = FileCache();
    EXPECT_LE(failures_.size(), 1u);
}

TEST_F(FastTierTest, RefusesWhatItCannotBe) {
    const auto error_of = [this](const std::string& folder, uint64_t size) {
        FileCacheOptions options{.devices = {device_}, .size = kCacheSize, .chunk_size = kChunk};
        options.tier = folder;
        options.tier_size = size;
        return FileCache::create(options).status().error_number();
    };
    EXPECT_EQ(error_of(std::string(folder_) + "/none", kTierSize), ENOENT);
    EXPECT_EQ(error_of(write_file("a", 1), kTierSize), ENOTDIR);
    EXPECT_EQ(error_of("/proc/self", kTierSize) == 0, false);
    EXPECT_EQ(error_of(folder_, 1023 * kChunk), EINVAL);
    EXPECT_EQ(error_of(folder_, uint64_t{1} << 42), ENOSPC);
}

// ---- The tier alone

TEST_F(FastTierTest, ACopyUnderWayIsNotUsedAfterAChange) {
    auto made = file::FastTier::create(folder_, kTierSize, kChunk, {device_});
    ASSERT_TRUE(made.ok()) << made.status().message();
    file::FastTier& tier = *made.value();
    tier.add_file(0);
    std::vector<chunk_cache::ChunkId> unwanted;
    std::array<file::FastTier::Copy, 4> room;
    ASSERT_TRUE(tier.offer(0, 5, 50));
    ASSERT_TRUE(tier.offer(0, 6, 60));
    EXPECT_FALSE(tier.offer(0, 6, 61));
    EXPECT_FALSE(tier.holds(0, 5));
    auto copies = tier.next(room, &unwanted);
    ASSERT_EQ(copies.size(), 2u);
    tier.drop(0, 6, 6);
    EXPECT_TRUE(tier.copied(copies[0], true));
    EXPECT_FALSE(tier.copied(copies[1], true));
    EXPECT_TRUE(tier.holds(0, 5));
    EXPECT_FALSE(tier.holds(0, 6));
    // What is dropped before its turn is not copied at all.
    ASSERT_TRUE(tier.offer(0, 7, 70));
    tier.drop(0, 0, 9);
    EXPECT_TRUE(tier.next(room, &unwanted).empty());
    EXPECT_EQ(unwanted, std::vector<chunk_cache::ChunkId>{70});
    // A failed copy is not used, and after an error nothing is.
    ASSERT_TRUE(tier.offer(0, 8, 80));
    EXPECT_FALSE(tier.copied(tier.next(room, &unwanted)[0], false));
    EXPECT_FALSE(tier.holds(0, 8));
    ASSERT_TRUE(tier.offer(0, 9, 90));
    tier.copied(tier.next(room, &unwanted)[0], true);
    EXPECT_TRUE(tier.holds(0, 9));
    tier.fail({EIO, "tier", ""});
    EXPECT_FALSE(tier.holds(0, 9));
    EXPECT_FALSE(tier.offer(0, 10, 100));
    tier.remove_file(0);
}

TEST_F(FastTierTest, TheQueueHasAnEnd) {
    auto made = file::FastTier::create(folder_, kTierSize, kChunk, {device_});
    ASSERT_TRUE(made.ok()) << made.status().message();
    made.value()->add_file(0);
    for (uint32_t i = 0; i < file::FastTier::kQueueMax; ++i)
        EXPECT_TRUE(made.value()->offer(0, i, i));
    EXPECT_FALSE(made.value()->offer(0, 1'000, 1'000));
}

}  // namespace
}  // namespace penstock
