// Goal: what was synced to a log is in the files after a crash, wherever the log ends; a log that
// is full or fails costs time, and no bytes.
#include "file/write_log.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/prng.h"
#include "file/log_recovery.h"
#include "file/write_log_fixture.h"
#include "testing/effort.h"

namespace penstock {
namespace {

using file::LogHeader;
using file::LogRecord;
using file::WriteLog;

TEST_F(WriteLogTest, TheChecksumIsCrc32c) {
    const char text[] = "123456789";
    EXPECT_EQ(file::crc32c(0, std::as_bytes(std::span(text, 9))), 0xe3069283u);
    EXPECT_EQ(file::crc32c(file::crc32c(0, std::as_bytes(std::span(text, 4))),
                           std::as_bytes(std::span(text + 4, 5))),
              0xe3069283u);
}

// Each record changes the files as `states` says. The log is cut off at each byte, and replayed on
// files as they were.
TEST_F(WriteLogTest, EachEndOfALogGivesWhatItsWholeRecordsSay) {
    const std::string a = write_file("a", 3'000), b = write_file("b", 100);
    const Bytes a_before = bytes_of(a), b_before = bytes_of(b);
    auto log = open_log();
    std::vector<std::pair<Bytes, Bytes>> states{{a_before, b_before}};
    std::vector<uint64_t> ends{LogHeader::kSize};
    const auto step = [&](const std::string& path, LogRecord::Kind kind, uint64_t offset,
                          uint64_t size, const Bytes& bytes = {}) {
        append(*log, file_at(path), path == a ? "a" : "b", kind, offset, size, bytes);
        states.push_back(states.back());
        Bytes& state = path == a ? states.back().first : states.back().second;
        if (kind == LogRecord::Kind::kForget) state = path == a ? a_before : b_before;
        if (kind == LogRecord::Kind::kTruncate) state.resize(size);
        if (kind == LogRecord::Kind::kWrite) {
            state.resize(std::max<uint64_t>(state.size(), size));
            std::copy(bytes.begin(), bytes.end(), state.begin() + static_cast<ptrdiff_t>(offset));
        }
        ends.push_back(LogHeader::kSize + log->size());
    };
    using Kind = LogRecord::Kind;
    step(a, Kind::kWrite, 100, 3'000, some_bytes(50, 1));
    step(b, Kind::kWrite, 90, 120, some_bytes(20, 2));
    step(a, Kind::kTruncate, 0, 120);
    step(b, Kind::kForget, 2, 0);  // the first two sequences
    step(a, Kind::kWrite, 130, 200, some_bytes(60, 3));
    step(b, Kind::kWrite, 0, 100, some_bytes(10, 4));
    log = nullptr;
    const std::string name = file::log_names(tier_, folder_)[0];
    Bytes whole = bytes_of(name);
    ASSERT_GT(whole.size(), ends.back());
    whole.resize(ends.back());
    const auto put = [](const std::string& path, const Bytes& bytes, uint64_t size) {
        std::ofstream(path, std::ios::trunc | std::ios::binary)
            .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(size));
    };
    for (uint64_t end = sizeof(LogHeader); end <= whole.size(); ++end) {
        if (end < LogHeader::kSize && end > sizeof(LogHeader)) end = LogHeader::kSize;
        put(a, a_before, a_before.size());
        put(b, b_before, b_before.size());
        put(name, whole, end);
        const auto count = static_cast<size_t>(
            std::max<ptrdiff_t>(1, std::ranges::upper_bound(ends, end) - ends.begin()) - 1);
        log = open_log();
        const auto told = file::recover_log(*log, tier_, folder_);
        ASSERT_TRUE(told.ok()) << told.status().message();
        ASSERT_EQ(bytes_of(a), states[count].first) << "end " << end;
        ASSERT_EQ(bytes_of(b), states[count].second) << "end " << end;
        ASSERT_TRUE(told.value().kept.empty());
        ASSERT_EQ(log->size(), 0u);
        log = nullptr;
    }
    // A byte that is wrong ends it too.
    put(a, a_before, a_before.size());
    Bytes wrong = whole;
    wrong[ends[2] + 40] ^= std::byte{1};
    put(name, wrong, wrong.size());
    log = open_log();
    ASSERT_TRUE(file::recover_log(*log, tier_, folder_).ok());
    EXPECT_EQ(bytes_of(a), states[2].first);
}

TEST_F(WriteLogTest, BothHalvesAreReplayedInOrder) {
    const std::string a = write_file("a", 100);
    auto log = open_log();
    append(*log, file_at(a), "a", LogRecord::Kind::kWrite, 0, 100, Bytes(50, std::byte{1}));
    EXPECT_EQ(log->turn().value(), 0);
    append(*log, file_at(a), "a", LogRecord::Kind::kWrite, 0, 100, Bytes(20, std::byte{2}));
    EXPECT_TRUE(log->reset(0).ok());
    EXPECT_EQ(log->turn().value(), 1);
    append(*log, file_at(a), "a", LogRecord::Kind::kWrite, 0, 100, Bytes(10, std::byte{3}));
    log = nullptr;
    log = open_log();
    EXPECT_EQ(file::recover_log(*log, tier_, folder_).value().records, 2u);
    Bytes expected(20, std::byte{2});
    std::fill_n(expected.begin(), 10, std::byte{3});
    const Bytes found = bytes_of(a);
    EXPECT_EQ(std::memcmp(found.data(), expected.data(), 20), 0);
}

// A program decides what the bytes of a record are. They end up where a half that is used again
// has its next record, and look like that.
TEST_F(WriteLogTest, BytesThatLookLikeARecordAreNone) {
    const std::string a = write_file("a", 100);
    auto log = open_log();
    const Bytes crafted_bytes(10, std::byte{9});
    LogRecord crafted;
    crafted.key = log->key(0);  // though no program knows it
    crafted.sequence = 3;
    crafted.file = file_at(a);
    crafted.size = 100;
    crafted.path_size = 1;
    crafted.bytes_size = 10;
    crafted.checksum = file::checksum_of(crafted, "a", crafted_bytes);
    Bytes bytes(50, std::byte{1});
    const auto* const begin = reinterpret_cast<const std::byte*>(&crafted);
    bytes.insert(bytes.end(), begin, begin + sizeof crafted);
    bytes.push_back(std::byte{'a'});
    bytes.insert(bytes.end(), crafted_bytes.begin(), crafted_bytes.end());
    append(*log, file_at(a), "a", LogRecord::Kind::kWrite, 0, 100, bytes);
    std::vector<uint64_t> keys{0, log->key(0), log->key(1)};
    ASSERT_TRUE(log->reset(0).ok());
    append(*log, file_at(a), "a", LogRecord::Kind::kWrite, 0, 100, Bytes(50, std::byte{2}));
    keys.push_back(log->key(0));
    log = nullptr;
    log = open_log();
    EXPECT_EQ(file::recover_log(*log, tier_, folder_).value().records, 1u);
    EXPECT_EQ(bytes_of(a)[0], std::byte{2});
    for (const int half : {0, 1}) keys.push_back(log->key(half));
    std::ranges::sort(keys);
    EXPECT_EQ(std::ranges::adjacent_find(keys), keys.end());
}

TEST_F(WriteLogTest, AnotherVersionOrADamagedHeaderIsRefused) {
    open_log();
    const std::string name = file::log_names(tier_, folder_)[1];
    const auto error_with = [&](uint64_t magic, uint64_t key) {
        const int half = ::open(name.c_str(), O_WRONLY);
        const uint64_t words[] = {magic, key};
        EXPECT_EQ(pwrite(half, words, sizeof words, 0), 16);
        ::close(half);
        return WriteLog::open(tier_, folder_, 1 << 20).status();
    };
    const Status other = error_with(0x31676f6c6b747370, 5);  // "pstklog1"
    EXPECT_EQ(other.error_number(), EOPNOTSUPP);
    EXPECT_NE(other.message().find("another version of Penstock"), std::string::npos);
    EXPECT_EQ(error_with(0x3a676f6c6b747370, 5).error_number(), EOPNOTSUPP);
    EXPECT_EQ(error_with(LogHeader::kMagic, 5).error_number(), EUCLEAN);
    EXPECT_EQ(error_with(LogHeader::kMagic, 0).error_number(), EUCLEAN);
    EXPECT_EQ(error_with(7, 5).error_number(), EUCLEAN);
    EXPECT_TRUE(error_with(0, 0).ok());  // a process was killed before it began
}

// A log has its space from the start, and keeps it.
TEST_F(WriteLogTest, TheSpaceOfALogIsReserved) {
    constexpr uint64_t kMost = 1 << 20;
    const auto has_space = [&] {
        return std::ranges::all_of(file::log_names(tier_, folder_), [](const std::string& name) {
            struct stat state {};
            EXPECT_EQ(::stat(name.c_str(), &state), 0);
            return static_cast<uint64_t>(state.st_blocks) * 512 > kMost;
        });
    };
    auto log = open_log(kMost);
    EXPECT_TRUE(has_space());
    append(*log, file_at(write_file("a", 100)), "a", LogRecord::Kind::kWrite, 0, 100,
           some_bytes(50'000, 1));
    ASSERT_TRUE(log->turn().ok());
    ASSERT_TRUE(log->reset(0).ok());
    EXPECT_TRUE(has_space());
    EXPECT_EQ(log->size(), 0u);
    ASSERT_TRUE(log->remove());
    auto again = WriteLog::open(tier_, folder_, kMost);
    ASSERT_TRUE(again.ok());
    log = std::move(again.value());
    const FileSizeLimit limit(kMost);  // stands for a disk that is full
    const Status status = log->reserve();
    EXPECT_EQ(status.error_number(), EFBIG);
    EXPECT_NE(status.message().find("a quarter of the tier's size"), std::string::npos);
}

TEST_F(WriteLogTest, OneProcessHasALog) {
    const auto log = open_log();
    EXPECT_EQ(WriteLog::open(tier_, folder_, 1 << 20).status().error_number(), EBUSY);
    EXPECT_TRUE(WriteLog::open(tier_, "/another", 1 << 20).ok());
}

// A limit of files' sizes stands for a disk that is full.
TEST_F(WriteLogTest, ARecordThatFailedLeavesNothingAndEndsTheLog) {
    const std::string a = write_file("a", 100);
    auto log = open_log();
    append(*log, file_at(a), "a", LogRecord::Kind::kWrite, 0, 100, some_bytes(50, 1));
    const uint64_t size = log->size();
    LogRecord record;
    record.file = file_at(a);
    const Bytes bytes = some_bytes(40'000, 2);
    {
        const FileSizeLimit limit(10'000);  // a part of it is written
        const auto lock = log->begin();
        EXPECT_EQ(log->append(record, "a", bytes).error_number(), EFBIG);
    }
    EXPECT_EQ(log->size(), size);
    EXPECT_EQ(log->make_durable().error_number(), EFBIG);
    {
        const auto lock = log->begin();
        EXPECT_EQ(log->append(record, "a", {}).error_number(), EFBIG);
    }
    EXPECT_EQ(log->size(), size);
    EXPECT_EQ(log->turn().value(), 0);  // what it has can still be put away
    log = nullptr;
    log = open_log();
    EXPECT_EQ(file::recover_log(*log, tier_, folder_).value().records, 1u);
}

// A pipe cannot be made durable.
TEST_F(WriteLogTest, AFailedSyncEndsTheLog) {
    const std::string a = write_file("a", 100);
    for (const bool turns : {false, true}) {
        auto log = open_log();
        append(*log, file_at(a), "a", LogRecord::Kind::kWrite, 0, 100, some_bytes(50, 1));
        const int disk = dup(log->descriptor(0));
        int pipes[2];
        ASSERT_EQ(pipe(pipes), 0);
        ASSERT_EQ(dup2(pipes[1], log->descriptor(0)), log->descriptor(0));
        EXPECT_EQ(turns ? log->turn().status().error_number() : log->make_durable().error_number(),
                  EINVAL);
        ASSERT_EQ(dup2(disk, log->descriptor(0)), log->descriptor(0));
        for (const int one : {disk, pipes[0], pipes[1]}) ::close(one);
        EXPECT_EQ(log->make_durable().error_number(), EINVAL);
        LogRecord record;
        const auto lock = log->begin();
        EXPECT_EQ(log->append(record, "a", {}).error_number(), EINVAL);
    }
}

// In a folder where others may make files.
TEST_F(WriteLogTest, ALogThatIsNotThisUsersAloneIsRefused) {
    const std::string a = write_file("a", 100);
    const Bytes before = bytes_of(a);
    const std::string name = file::log_names(tier_, folder_)[0];
    const auto error = [&] { return WriteLog::open(tier_, folder_, 1 << 20).status(); };
    ASSERT_EQ(symlink(a.c_str(), name.c_str()), 0);
    EXPECT_EQ(error().error_number(), ELOOP);
    ASSERT_EQ(unlink(name.c_str()), 0);
    ASSERT_EQ(link(a.c_str(), name.c_str()), 0);
    EXPECT_EQ(error().error_number(), EPERM);
    ASSERT_EQ(unlink(name.c_str()), 0);
    EXPECT_EQ(bytes_of(a), before);
    ASSERT_EQ(mkfifo(name.c_str(), 0600), 0);
    EXPECT_EQ(error().error_number(), EPERM);
    ASSERT_EQ(unlink(name.c_str()), 0);
    open_log();
    for (const mode_t mode : {0620, 0602}) {
        ASSERT_EQ(chmod(name.c_str(), mode), 0);
        EXPECT_EQ(error().error_number(), EPERM);
    }
    ASSERT_EQ(chmod(name.c_str(), 0600), 0);
    if (geteuid() == 0) {
        ASSERT_EQ(chown(name.c_str(), 1, static_cast<gid_t>(-1)), 0);
        EXPECT_EQ(error().error_number(), EPERM);
        ASSERT_EQ(chown(name.c_str(), 0, static_cast<gid_t>(-1)), 0);
    }
    EXPECT_TRUE(error().ok());
}

// ---- A cache with a log

TEST_F(WriteLogTest, ASyncIsDurableInTheLogAndStorageGetsItLater) {
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

TEST_F(WriteLogTest, TheLogIsDrainedByItself) {
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

TEST_F(WriteLogTest, AFullLogLetsStorageSync) {
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
TEST_F(WriteLogTest, ASyncAfterAChangeOfAttributesGoesToStorage) {
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
TEST_F(WriteLogTest, FullStorageKeepsTheLog) {
    make_with_log({.dirty_age = std::chrono::milliseconds(1)});
    const std::string path = write_file("a", 10'000);
    const CachedFile file = open_logged(path);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small{60'000, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    ASSERT_TRUE(file.write("kept", 4, 100'000).ok());
    ASSERT_TRUE(file.sync().ok());
    EXPECT_EQ(cache_.flush().error_number(), EFBIG);
    EXPECT_GT(cache_.statistics().tier_log_size, 0u);
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_TRUE(cache_.flush().ok());
    EXPECT_EQ(cache_.statistics().tier_log_size, 0u);
    EXPECT_EQ(std::memcmp(&bytes_of(path)[100'000], "kept", 4), 0);
}

// RLIMIT_FSIZE stands for a disk of the tier that takes no more, and storage has room.
TEST_F(WriteLogTest, AFailedLogIsEndedAndStorageSyncs) {
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
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small{4'000, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    const Status status = file.sync();
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(std::memcmp(bytes_of(path).data(), "two", 3), 0);
    EXPECT_NE(cache_.statistics().tier_log_error, "");
    EXPECT_FALSE(std::filesystem::exists(file::log_names(tier_, folder_)[0]));
    ASSERT_TRUE(file.write("three", 5, 20).ok());
    ASSERT_TRUE(file.sync().ok());
    EXPECT_EQ(std::memcmp(&bytes_of(path)[20], "three", 5), 0);
}

TEST_F(WriteLogTest, AFailureOfTheLogIsToldThoughNoFileIsInIt) {
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
TEST_F(WriteLogTest, ALogThatCannotBeEmptiedIsEnded) {
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
TEST_F(WriteLogTest, RandomCallsEqualFlatBytes) {
    constexpr uint64_t kSizeMax = kCacheSize + kCacheSize / 2;
    for (uint64_t seed = 0; seed < testing::effort(2, 1, 200); ++seed) {
        base::Prng prng(seed);
        make_with_log({.dirty_age = std::chrono::milliseconds(seed % 2 == 0 ? 1 : 100'000),
                       .write_on_close = seed % 3 == 0});
        const std::string path = write_file("a", prng.below(kSizeMax));
        CachedFile file = open_logged(path);
        Bytes flat = bytes_of(path);
        for (int step = 0; step < 200; ++step) {
            const uint64_t offset = prng.below(kSizeMax);
            const uint64_t size = prng.below(prng.below(8) == 0 ? kCacheSize / 2 : 3 * kChunk) + 1;
            switch (prng.below(10)) {
                case 0:
                    flat.resize(offset);
                    ASSERT_TRUE(file.truncate(offset).ok());
                    break;
                case 1:
                case 2:
                    ASSERT_TRUE(file.sync(prng.below(2) == 0).ok());
                    break;
                case 3:
                    ASSERT_TRUE(file.flush().ok());
                    ASSERT_EQ(bytes_of(path), flat);
                    break;
                case 4:
                    file = CachedFile();
                    file = open(path);
                    break;
                case 5:
                case 6:
                case 7: {
                    const Bytes bytes = some_bytes(size, prng.next());
                    flat.resize(std::max(flat.size(), offset + size));
                    std::memcpy(&flat[offset], bytes.data(), size);
                    ASSERT_EQ(file.write(bytes.data(), size, offset).value(), size);
                    break;
                }
                default: {
                    const auto got = read(file, size, offset);
                    const uint64_t end = std::min(flat.size(), offset + size);
                    const Bytes expected(
                        flat.begin() + static_cast<ptrdiff_t>(std::min(offset, end)),
                        flat.begin() + static_cast<ptrdiff_t>(end));
                    ASSERT_EQ(got, expected) << "seed " << seed << " step " << step;
                }
            }
            ASSERT_EQ(file.size(), flat.size()) << "seed " << seed << " step " << step;
        }
        ASSERT_TRUE(cache_.flush().ok());
        ASSERT_EQ(bytes_of(path), flat);
        EXPECT_GT(cache_.statistics().tier_bytes_logged, 0u);
    }
}

// Each thread has pieces of its own in every chunk; all read, write, sync and cut at once, while
// the log turns.
TEST_F(WriteLogTest, ThreadsThatSyncAtOnceKeepTheirBytes) {
    make_with_log({.dirty_age = std::chrono::milliseconds(1), .tier_size = kCacheSize});
    constexpr unsigned kThreads = 4;
    constexpr uint64_t kPiece = 512, kPieces = kCacheSize / kPiece / 2;
    const std::string path = write_file("a", kPieces * kPiece);
    Bytes expected = bytes_of(path);
    const CachedFile logged = open_logged(path);
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
            base::Prng prng(thread);
            const CachedFile file = open(path);
            for (uint64_t step = 0; step < testing::effort(2000, 300, 50'000); ++step) {
                const uint64_t piece = prng.below(kPieces / kThreads) * kThreads + thread;
                std::byte* const own = &expected[piece * kPiece];
                testing::fill_randomly(own, kPiece, prng.next());
                EXPECT_EQ(file.write(own, kPiece, piece * kPiece).value(), kPiece);
                if (prng.below(20) == 0) {
                    EXPECT_TRUE(file.sync().ok());
                }
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(cache_.flush().ok());
    EXPECT_EQ(bytes_of(path), expected);
}

}  // namespace
}  // namespace penstock
