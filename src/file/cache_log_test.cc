// Goal: what was synced to the log of a cache is in the files after a crash; a log that is full or
// fails costs time, and no bytes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/prng.h"
#include "file/log_recovery.h"
#include "file/write_log_fixture.h"
#include "testing/effort.h"

namespace penstock {
namespace {

class CacheLogTest : public WriteLogTest {};

TEST_F(CacheLogTest, ASyncIsDurableInTheLogAndStorageGetsItLater) {
    make_with_log({.dirty_age = std::chrono::milliseconds(100'000)});
    const std::string path = write_file("a", 20'000);
    CachedFile file = open_logged(path);
    Bytes expected = bytes_of(path);
    const Bytes before = expected;
    ASSERT_TRUE(file.write("new", 3, 5'000).ok());
    ASSERT_TRUE(file.write("end", 3, 30'000).ok());
    ASSERT_TRUE(file.sync().ok());
    EXPECT_EQ(bytes_of(path), before);
    EXPECT_EQ(cache_.statistics().bytes_written, 0u);
    EXPECT_GT(cache_.statistics().tier_bytes_logged, 5u);
    EXPECT_EQ(file.size(), 30'003u);
    // The next cache finds the log of this one as a crash would leave it.
    const std::string copy = std::string(tier_) + "/copy";
    std::filesystem::create_directory(copy);
    for (const std::string& name : file::log_names(tier_, folder_))
        std::filesystem::copy_file(name, copy + name.substr(name.rfind('/')));
    const auto next = FileCache::create({.devices = {device_},
                                         .size = kCacheSize,
                                         .chunk_size = kChunk,
                                         .tier = copy,
                                         .tier_size = kCacheSize,
                                         .tier_root = folder_});
    ASSERT_TRUE(next.ok()) << next.status().message();
    expected.resize(30'003);
    std::memcpy(&expected[5'000], "new", 3);
    std::memcpy(&expected[30'000], "end", 3);
    EXPECT_EQ(bytes_of(path), expected);
    EXPECT_GT(next.value().statistics().tier_bytes_recovered, 5u);
    EXPECT_TRUE(next.value().statistics().tier_kept.empty());
    // An orderly end leaves no log.
    EXPECT_TRUE(cache_.flush().ok());
    EXPECT_EQ(cache_.statistics().tier_log_size, 0u);
    EXPECT_EQ(bytes_of(path), expected);
    file = CachedFile();
    cache_ = FileCache();
    for (const std::string& name : file::log_names(tier_, folder_))
        EXPECT_FALSE(std::filesystem::exists(name));
}

TEST_F(CacheLogTest, TheLogIsDrainedByItself) {
    make_with_log({.dirty_age = std::chrono::milliseconds(1)});
    const std::string path = write_file("a", 20'000);
    const CachedFile file = open_logged(path);
    ASSERT_TRUE(file.write("new", 3, 5'000).ok());
    ASSERT_TRUE(file.sync().ok());
    for (int i = 0; i < 1000 && cache_.statistics().tier_log_size > 0; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(cache_.statistics().tier_log_size, 0u);
    EXPECT_EQ(std::memcmp(&bytes_of(path)[5'000], "new", 3), 0);
}

TEST_F(CacheLogTest, AFullLogLetsStorageSync) {
    make_with_log({.dirty_age = std::chrono::milliseconds(100'000), .tier_size = kCacheSize});
    const std::string path = write_file("a", 20'000);
    const CachedFile file = open_logged(path);
    const uint64_t most = kCacheSize / 8;
    const Bytes bytes = some_bytes(most + kChunk, 7);
    ASSERT_TRUE(file.write(bytes.data(), bytes.size(), 0).ok());
    ASSERT_TRUE(file.sync().ok());
    EXPECT_EQ(bytes_of(path), bytes);
    EXPECT_LE(cache_.statistics().tier_log_size, 2 * most);
    EXPECT_EQ(cache_.statistics().tier_log_error, "");
}

// Of a file whose attributes have changed the log does not have all. The attributes themselves are
// not asked: only a loss of power tells whether they are durable.
TEST_F(CacheLogTest, ASyncAfterAChangeOfAttributesGoesToStorage) {
    make_with_log({.dirty_age = std::chrono::milliseconds(100'000)});
    const std::string path = write_file("a", 10'000);
    const CachedFile file = open_logged(path);
    const int descriptor = ::open(path.c_str(), O_RDONLY);
    const auto change_mode = [&](mode_t mode) {
        EXPECT_TRUE(
            cache_.change(descriptor, false, [&] { return fchmod(descriptor, mode); }).ok());
    };
    uint64_t at = 0;
    // Returns whether a sync was durable in the log alone.
    const auto logs = [&](bool data_only = false) {
        const auto mark = static_cast<char>(++at);
        EXPECT_TRUE(file.write(&mark, 1, at).ok());
        EXPECT_TRUE(file.sync(data_only).ok());
        return static_cast<char>(bytes_of(path)[at]) != mark;
    };
    EXPECT_TRUE(logs());
    change_mode(0640);
    EXPECT_FALSE(logs());
    EXPECT_TRUE(logs());
    change_mode(0600);
    EXPECT_FALSE(logs(true));  // so storage is synced for both
    EXPECT_TRUE(logs());
    // Another program has changed the file, unseen, before it is changed through the cache.
    const timespec times[] = {{1, 0}, {1, 0}};
    ASSERT_TRUE(file.sync().ok());
    ASSERT_TRUE(file.flush().ok());
    ASSERT_EQ(futimens(descriptor, times), 0);
    change_mode(0640);
    EXPECT_FALSE(logs());
    EXPECT_TRUE(logs());
    // Changes that do not pass the cache.
    ASSERT_EQ(fchmod(descriptor, 0600), 0);
    EXPECT_TRUE(logs(true));  // of no interest to fdatasync
    EXPECT_FALSE(logs());
    EXPECT_TRUE(logs());
    ASSERT_EQ(futimens(descriptor, times), 0);
    EXPECT_FALSE(logs());
    EXPECT_TRUE(logs());
    ::close(descriptor);
}

// RLIMIT_FSIZE stands for storage that is full, and the log has room.
TEST_F(CacheLogTest, FullStorageKeepsTheLog) {
    make_with_log({.dirty_age = std::chrono::milliseconds(1)});
    const std::string path = write_file("a", 10'000);
    const CachedFile file = open_logged(path);
    {
        const FileSizeLimit limit(60'000);
        ASSERT_TRUE(file.write("kept", 4, 100'000).ok());
        ASSERT_TRUE(file.sync().ok());
        EXPECT_EQ(cache_.flush().error_number(), EFBIG);
        EXPECT_GT(cache_.statistics().tier_log_size, 0u);
    }
    EXPECT_TRUE(cache_.flush().ok());
    EXPECT_EQ(cache_.statistics().tier_log_size, 0u);
    EXPECT_EQ(std::memcmp(&bytes_of(path)[100'000], "kept", 4), 0);
}

// The half that is being brought to storage still has the file's records when storage syncs it.
TEST_F(CacheLogTest, ACrashBeforeAHalfIsEmptiedBringsNothingOldBack) {
    make_with_log({.dirty_age = std::chrono::milliseconds(50)});
    const std::string a = write_file("a", 10'000), b = write_file("b", 10'000);
    const CachedFile first = open_logged(a), other = open_logged(b);
    {
        const FileSizeLimit limit(60'000);  // storage does not take the other file
        ASSERT_TRUE(first.write("old", 3, 0).ok());
        ASSERT_TRUE(first.sync().ok());
        ASSERT_TRUE(other.write("kept", 4, 100'000).ok());
        ASSERT_TRUE(other.sync().ok());
        for (int i = 0; i < 1000 && cache_.statistics().write_errors == 0; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        // By now the thread of the log has tried too. If not, this test finds nothing.
        std::this_thread::sleep_for(std::chrono::milliseconds(450));
        EXPECT_EQ(std::memcmp(bytes_of(a).data(), "old", 3), 0);
        ASSERT_GT(cache_.statistics().tier_log_size, 0u);
        // What is not in the log at all.
        const Status punched = first.allocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 100);
        if (punched.error_number() == EOPNOTSUPP) GTEST_SKIP() << "no holes in this file system";
        ASSERT_TRUE(punched.ok()) << punched.message();
        ASSERT_TRUE(first.sync().ok());
    }
    const std::string copy = std::string(tier_) + "/copy";
    std::filesystem::create_directory(copy);
    for (const std::string& name : file::log_names(tier_, folder_))
        std::filesystem::copy_file(name, copy + name.substr(name.rfind('/')));
    const auto log = file::WriteLog::open(copy, folder_, 1 << 20);
    ASSERT_TRUE(log.ok());
    ASSERT_TRUE(file::recover_log(*log.value(), log.value()->generation(0), copy, folder_).ok());
    EXPECT_EQ(bytes_of(a)[0], std::byte{0});
    EXPECT_EQ(std::memcmp(&bytes_of(b)[100'000], "kept", 4), 0);
}

// RLIMIT_FSIZE stands for a disk of the tier that takes no more, and storage has room.
TEST_F(CacheLogTest, AFailedLogIsEndedAndStorageSyncs) {
    make_with_log({.dirty_age = std::chrono::milliseconds(100'000)});
    const std::string path = write_file("a", 10'000);
    const CachedFile file = open_logged(path);
    const Bytes bytes = some_bytes(kChunk, 1);
    ASSERT_TRUE(file.write(bytes.data(), kChunk, kChunk).ok());
    ASSERT_TRUE(file.sync().ok());
    ASSERT_TRUE(file.flush().ok());  // storage has the bytes, which only the log has durable
    const uint64_t logged = cache_.statistics().tier_log_size;
    ASSERT_GT(logged, 4'000u);
    ASSERT_TRUE(file.write("two", 3, 0).ok());
    {
        const FileSizeLimit limit(4'000);
        const Status status = file.sync();
        EXPECT_TRUE(status.ok()) << status.message();
    }
    EXPECT_EQ(std::memcmp(bytes_of(path).data(), "two", 3), 0);
    EXPECT_NE(cache_.statistics().tier_log_error, "");
    EXPECT_FALSE(std::filesystem::exists(file::log_names(tier_, folder_)[0]));
    ASSERT_TRUE(file.write("three", 5, 20).ok());
    ASSERT_TRUE(file.sync().ok());
    EXPECT_EQ(std::memcmp(&bytes_of(path)[20], "three", 5), 0);
}

TEST_F(CacheLogTest, AFailureOfTheLogIsToldThoughNoFileIsInIt) {
    make_with_log({.dirty_age = std::chrono::milliseconds(100'000)});
    const std::string path = write_file("a", 10'000);
    const CachedFile file = open_logged(path);
    EXPECT_EQ(cache_.statistics().tier_log_error, "");
    {
        const FileSizeLimit limit(50);  // less than a record
        ASSERT_TRUE(file.write("new", 3, 0).ok());
        ASSERT_TRUE(file.flush().ok());
    }
    EXPECT_NE(cache_.statistics().tier_log_error.find("File too large"), std::string::npos);
    // The log is ended, without another call.
    const std::string name = file::log_names(tier_, folder_)[0];
    for (int i = 0; i < 1000 && std::filesystem::exists(name); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_FALSE(std::filesystem::exists(name));
}

// A descriptor that cannot write stands for a disk that fails.
TEST_F(CacheLogTest, ALogThatCannotBeEmptiedIsEnded) {
    make_with_log({.dirty_age = std::chrono::milliseconds(100'000)});
    const std::string path = write_file("a", 10'000);
    const CachedFile file = open_logged(path);
    ASSERT_TRUE(file.write("new", 3, 0).ok());
    ASSERT_TRUE(file.sync().ok());
    const std::string name = file::log_names(tier_, folder_)[0];
    const int reads = ::open(name.c_str(), O_RDONLY);
    const int log = descriptor_of(name, O_RDWR);
    ASSERT_EQ(dup2(reads, log), log);
    ::close(reads);
    EXPECT_TRUE(cache_.flush().ok());  // storage has it all
    EXPECT_EQ(std::memcmp(bytes_of(path).data(), "new", 3), 0);
    EXPECT_NE(cache_.statistics().tier_log_error, "");
    EXPECT_FALSE(std::filesystem::exists(name));
    ASSERT_TRUE(file.write("more", 4, 0).ok());
    ASSERT_TRUE(file.sync().ok());
    EXPECT_EQ(std::memcmp(bytes_of(path).data(), "more", 4), 0);
}

// As FileCacheTest.RandomCallsEqualFlatBytes.
TEST_F(CacheLogTest, RandomCallsEqualFlatBytes) {
    constexpr uint64_t kSizeMax = kCacheSize + kCacheSize / 2;
    for (uint64_t seed = 0; seed < testing::effort(2, 1, 200); ++seed) {
        base::Prng prng(seed);
        make_with_log({.dirty_age = std::chrono::milliseconds(seed % 2 == 0 ? 1 : 100'000),
                       .write_on_close = seed % 3 == 0});
        const std::string path = write_file("a", prng.below(kSizeMax));
        FlatFile file{open_logged(path), bytes_of(path)};
        for (int step = 0; step < 200; ++step) {
            SCOPED_TRACE("seed " + std::to_string(seed) + " step " + std::to_string(step));
            const uint64_t offset = prng.below(kSizeMax);
            const uint64_t size = prng.below(prng.below(8) == 0 ? kCacheSize / 2 : 3 * kChunk) + 1;
            switch (prng.below(10)) {
                case 0:
                    file.truncate(offset);
                    break;
                case 1:
                case 2:
                    ASSERT_TRUE(file.file.sync(prng.below(2) == 0).ok());
                    break;
                case 3:
                    ASSERT_TRUE(file.file.flush().ok());
                    ASSERT_EQ(bytes_of(path), file.flat);
                    break;
                case 4:
                    file.file = CachedFile();
                    file.file = open(path);
                    break;
                case 5:
                case 6:
                case 7:
                    file.write(size, offset, prng.next());
                    break;
                default:
                    file.expect_read(size, offset);
            }
            ASSERT_EQ(file.file.size(), file.flat.size());
            if (HasFatalFailure()) return;
        }
        ASSERT_TRUE(cache_.flush().ok());
        ASSERT_EQ(bytes_of(path), file.flat);
        EXPECT_GT(cache_.statistics().tier_bytes_logged, 0u);
    }
}

// Each thread has pieces of its own in every chunk; all read, write, sync and cut at once, while
// the log turns.
TEST_F(CacheLogTest, ThreadsThatSyncAtOnceKeepTheirBytes) {
    make_with_log({.dirty_age = std::chrono::milliseconds(1), .tier_size = kCacheSize});
    constexpr uint64_t kPieces = kCacheSize / kPiece / 2;
    const std::string path = write_file("a", kPieces * kPiece);
    const CachedFile logged = open_logged(path);
    const auto then = [](base::Prng& prng, const CachedFile& file) {
        if (prng.below(20) == 0) {
            EXPECT_TRUE(file.sync().ok());
        }
    };
    const Bytes expected = use_pieces_at_once(path, kPieces, testing::effort(2000, 300, 50'000), 0,
                                              then);
    EXPECT_TRUE(cache_.flush().ok());
    EXPECT_EQ(bytes_of(path), expected);
}

}  // namespace
}  // namespace penstock
