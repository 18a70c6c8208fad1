// Goal: a log gives what its whole records say, wherever it ends, and nothing that only looks like
// a record.
#include "file/write_log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string_view>

#include "file/log_recovery.h"
#include "file/write_log_fixture.h"

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
        const auto told = file::recover_log(*log, kGeneration, tier_, folder_);
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
    ASSERT_TRUE(file::recover_log(*log, kGeneration, tier_, folder_).ok());
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
    EXPECT_EQ(file::recover_log(*log, kGeneration, tier_, folder_).value().records, 2u);
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
    EXPECT_EQ(file::recover_log(*log, kGeneration, tier_, folder_).value().records, 1u);
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
    const Status status = log->reserve(kGeneration);
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
    EXPECT_EQ(file::recover_log(*log, kGeneration, tier_, folder_).value().records, 1u);
}

// A pipe cannot be made durable.
TEST_F(WriteLogTest, AFailedSyncEndsTheLog) {
    const std::string a = write_file("a", 100);
    for (const bool turns : {false, true}) {
        auto log = open_log();
        append(*log, file_at(a), "a", LogRecord::Kind::kWrite, 0, 100, some_bytes(50, 1));
        ASSERT_TRUE(log->extend_life().ok());
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

// The next start would not find it.
TEST_F(WriteLogTest, ALogWithoutItsNameIsNotDurable) {
    const std::string a = write_file("a", 100), moved = std::string(tier_) + "-moved";
    const auto name = file::log_names(tier_, folder_)[1];
    const std::pair<const char*, std::function<void()>> changes[] = {
        {"removed", [&] { ASSERT_EQ(unlink(name.c_str()), 0); }},
        {"moved", [&] { ASSERT_EQ(rename(name.c_str(), (name + "x").c_str()), 0); }},
        {"replaced",
         [&] {
             std::ofstream(name + "y") << "other";
             ASSERT_EQ(rename((name + "y").c_str(), name.c_str()), 0);
         }},
        {"folder moved", [&] { ASSERT_EQ(rename(tier_, moved.c_str()), 0); }}};
    for (const auto& [what, change] : changes) {
        SCOPED_TRACE(what);
        auto log = open_log();
        append(*log, file_at(a), "a", LogRecord::Kind::kWrite, 0, 100, some_bytes(50, 1));
        EXPECT_TRUE(log->make_durable().ok());
        change();
        EXPECT_EQ(log->make_durable().error_number(), ENOENT);
        EXPECT_EQ(log->failure().error_number(), ENOENT);
        (void)log->remove();
        // What has the name by now is not the log's.
        EXPECT_EQ(std::filesystem::exists(name), std::string_view(what) == "replaced");
        log = nullptr;
        if (std::filesystem::exists(moved)) {
            ASSERT_EQ(rename(moved.c_str(), tier_), 0);
        }
        for (const auto& entry : std::filesystem::directory_iterator(tier_))
            std::filesystem::remove(entry.path());
    }
}

TEST_F(WriteLogTest, TheTimeUntilWhichAProcessLivesIsInItsLog) {
    auto log = open_log();
    EXPECT_EQ(log->lived_until_ns(), 0);
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t before = now.tv_sec * int64_t{1'000'000'000};
    constexpr int64_t kAhead = 3600'000'000'000;
    log->set_clock(kAhead);
    ASSERT_TRUE(log->make_durable().ok());
    log = nullptr;
    log = open_log();
    EXPECT_GT(log->lived_until_ns(), before + kAhead);
    EXPECT_LT(log->lived_until_ns(), before + kAhead + 3600'000'000'000);
    ASSERT_TRUE(log->reserve(kGeneration + 1).ok());  // of another process
    log = nullptr;
    log = open_log();
    EXPECT_EQ(log->lived_until_ns(), 0);
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

}  // namespace
}  // namespace penstock
