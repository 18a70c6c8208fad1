// Goal: recovery loses no byte that was synced: what has no place is kept, and what can be put
// nowhere stays in the log.
#include "file/log_recovery.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "file/write_log_fixture.h"

namespace penstock {
namespace {

using file::LogRecord;
using Kind = LogRecord::Kind;

class LogRecoveryTest : public WriteLogTest {};

TEST_F(LogRecoveryTest, AFileThatWasRenamedIsFoundAndOneThatIsGoneIsKept) {
    const std::string a = write_file("a", 100), b = write_file("b", 100);
    auto log = open_log();
    append(*log, file_at(a), "a", LogRecord::Kind::kWrite, 10, 100, some_bytes(50, 1));
    append(*log, file_at(b), "b", LogRecord::Kind::kWrite, 10, 100, some_bytes(50, 2));
    const std::string below = std::string(folder_) + "/below", moved = below + "/c";
    ASSERT_EQ(mkdir(below.c_str(), 0700), 0);
    ASSERT_EQ(rename(a.c_str(), moved.c_str()), 0);
    // Another file has the name, and perhaps the number, of the one that is gone.
    ASSERT_EQ(unlink(b.c_str()), 0);
    write_file("b", 100);
    const Bytes other = bytes_of(b);
    const auto told = file::recover_log(*log, kGeneration, tier_, folder_);
    ASSERT_TRUE(told.ok()) << told.status().message();
    const Bytes expected = some_bytes(50, 1), found = bytes_of(moved);
    EXPECT_EQ(std::memcmp(&found[10], expected.data(), 50), 0);
    EXPECT_EQ(bytes_of(b), other);
    ASSERT_EQ(kept().size(), 1u);
    ASSERT_EQ(told.value().kept.size(), 1u);
    EXPECT_NE(told.value().kept[0].find(b + ": 50 bytes that were synced"), std::string::npos);
    EXPECT_NE(told.value().kept[0].find(kept()[0]), std::string::npos);
    const Bytes lost = some_bytes(50, 2), there = bytes_of(kept()[0]);
    ASSERT_EQ(there.size(), 100u);
    EXPECT_EQ(std::memcmp(&there[10], lost.data(), 50), 0);
    std::filesystem::remove_all(below);
}

// RLIMIT_FSIZE stands for disks that are full.
TEST_F(LogRecoveryTest, ALogThatCanBePutNowhereStays) {
    const std::string a = write_file("a", 100);
    auto log = open_log();
    append(*log, file_at(a), "a", LogRecord::Kind::kWrite, 100'000, 100'050, some_bytes(50, 1));
    const uint64_t size = log->size();
    {
        const FileSizeLimit limit(60'000);
        EXPECT_EQ(file::recover_log(*log, kGeneration, tier_, folder_).status().error_number(),
                  EFBIG);
    }
    EXPECT_EQ(log->size(), size);
    EXPECT_TRUE(kept().empty());
    log = nullptr;
    log = open_log();
    EXPECT_EQ(file::recover_log(*log, kGeneration, tier_, folder_).value().bytes, 50u);
    EXPECT_EQ(bytes_of(a).size(), 100'050u);
}

// A mount that a killed process has left lies over the folder, say, and its files seem gone.
TEST_F(LogRecoveryTest, ALogWhoseFolderCannotBeReadStays) {
    const std::string a = write_file("a", 100), moved = std::string(folder_) + "-moved";
    auto log = open_log();
    append(*log, file_at(a), "a", LogRecord::Kind::kWrite, 10, 100, some_bytes(50, 1));
    const uint64_t size = log->size();
    ASSERT_EQ(rename(folder_, moved.c_str()), 0);
    const auto told = file::recover_log(*log, kGeneration, tier_, folder_);
    ASSERT_EQ(rename(moved.c_str(), folder_), 0);
    EXPECT_EQ(told.status().error_number(), ENOENT);
    EXPECT_EQ(log->size(), size);
    EXPECT_TRUE(kept().empty());
    EXPECT_EQ(file::recover_log(*log, kGeneration, tier_, folder_).value().bytes, 50u);
}

// A descriptor that cannot write stands for a crash between the two.
TEST_F(LogRecoveryTest, TheOlderHalfIsEmptiedFirst) {
    const std::string a = write_file("a", 100);
    auto log = open_log();
    EXPECT_EQ(log->turn().value(), 0);
    append(*log, file_at(a), "a", Kind::kWrite, 0, 100, Bytes(50, std::byte{1}));
    EXPECT_EQ(log->turn().value(), 1);
    append(*log, file_at(a), "a", Kind::kWrite, 0, 100, Bytes(50, std::byte{2}));
    const int reads = ::open(file::log_names(tier_, folder_)[1].c_str(), O_RDONLY);
    ASSERT_EQ(dup2(reads, log->descriptor(1)), log->descriptor(1));
    ::close(reads);
    EXPECT_FALSE(file::recover_log(*log, kGeneration, tier_, folder_).ok());
    log = nullptr;
    log = open_log();
    EXPECT_EQ(file::recover_log(*log, kGeneration, tier_, folder_).value().records, 2u);
    EXPECT_EQ(bytes_of(a)[0], std::byte{2});
}

TEST_F(LogRecoveryTest, ASizeThatStorageRefusesIsSkippedAndTold) {
    const std::string a = write_file("a", 100), b = write_file("b", 100);
    auto log = open_log();
    append(*log, file_at(a), "a", Kind::kTruncate, 0, uint64_t{1} << 50);
    append(*log, file_at(a), "a", Kind::kWrite, 10, 100, some_bytes(50, 1));
    append(*log, file_at(b), "b", Kind::kTruncate, 0, uint64_t{1} << 50);
    append(*log, file_at(b), "b", Kind::kTruncate, 0, 70);
    LogRecord gone;
    gone.file.inode = 1;
    append(*log, gone.file, "c", Kind::kTruncate, 0, 5);
    const FileSizeLimit limit(60'000);
    const auto told = file::recover_log(*log, kGeneration, tier_, folder_);
    ASSERT_TRUE(told.ok()) << told.status().message();
    const Bytes expected = some_bytes(50, 1), found = bytes_of(a);
    ASSERT_EQ(found.size(), 100u);
    EXPECT_EQ(std::memcmp(&found[10], expected.data(), 50), 0);
    EXPECT_EQ(bytes_of(b).size(), 70u);
    EXPECT_EQ(told.value().kept.size(), 3u);
    for (const char* name : {"/a", "/b", "/c"})
        EXPECT_TRUE(std::ranges::any_of(told.value().kept, [&](const std::string& line) {
            return line.starts_with(folder_ + std::string(name) + ": a size in the log could not");
        })) << name;
    EXPECT_TRUE(kept().empty());
    EXPECT_EQ(log->size(), 0u);
}

TEST_F(LogRecoveryTest, AFileWithoutAPlaceDoesNotStopTheOthers) {
    const std::string a = write_file("a", 100), b = write_file("b", 100), c = write_file("c", 100);
    auto log = open_log();
    append(*log, file_at(b), "b", Kind::kWrite, 100'000, 100'050, some_bytes(50, 2));
    append(*log, file_at(a), "a", Kind::kWrite, 10, 100, some_bytes(50, 1));
    append(*log, file_at(c), "c", Kind::kWrite, 10, 100, some_bytes(50, 3));
    LogRecord gone;
    gone.file.inode = 1;
    append(*log, gone.file, "d", Kind::kWrite, 10, 60, some_bytes(50, 4));
    const uint64_t size = log->size();
    {
        const FileSizeLimit limit(60'000);
        EXPECT_EQ(file::recover_log(*log, kGeneration, tier_, folder_).status().error_number(),
                  EFBIG);
    }
    EXPECT_EQ(log->size(), size);
    EXPECT_TRUE(kept().empty());
    EXPECT_EQ(std::memcmp(&bytes_of(a)[10], some_bytes(50, 1).data(), 50), 0);
    EXPECT_EQ(std::memcmp(&bytes_of(c)[10], some_bytes(50, 3).data(), 50), 0);
    const auto told = file::recover_log(*log, kGeneration, tier_, folder_);
    ASSERT_TRUE(told.ok()) << told.status().message();
    EXPECT_EQ(bytes_of(b).size(), 100'050u);
    EXPECT_EQ(kept().size(), 1u);
}

// A descriptor that cannot read stands for a disk that gives an error.
TEST_F(LogRecoveryTest, ALogThatCannotBeReadStays) {
    const std::string a = write_file("a", 100);
    auto log = open_log();
    append(*log, file_at(a), "a", Kind::kWrite, 10, 100, some_bytes(50, 1));
    const std::string name = file::log_names(tier_, folder_)[0];
    const int writes = ::open(name.c_str(), O_WRONLY);
    ASSERT_EQ(dup2(writes, log->descriptor(0)), log->descriptor(0));
    ::close(writes);
    EXPECT_EQ(file::recover_log(*log, kGeneration, tier_, folder_).status().error_number(), EBADF);
    log = nullptr;
    log = open_log();
    EXPECT_EQ(file::recover_log(*log, kGeneration, tier_, folder_).value().bytes, 50u);
}

// A user who may change folders below must not turn bytes to a file that is not there.
TEST_F(LogRecoveryTest, LinksAreNotFollowed) {
    const std::string below = std::string(folder_) + "/below", other = std::string(tier_) + "/x";
    for (const std::string& folder : {below, other}) ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
    const std::string names[] = {below + "/a", std::string(folder_) + "/b", other + "/a"};
    for (const std::string& name : names) {
        const int made = ::open(name.c_str(), O_CREAT | O_WRONLY, 0600);
        ASSERT_EQ(::write(made, "before", 6), 6);
        ::close(made);
    }
    auto log = open_log();
    // The very files that the records mean, by ways that are none.
    append(*log, file_at(names[2]), "below/a", Kind::kWrite, 0, 6, some_bytes(6, 1));
    append(*log, file_at(names[1]), "b", Kind::kWrite, 0, 6, some_bytes(6, 2));
    ASSERT_EQ(rename(below.c_str(), (std::string(tier_) + "/y").c_str()), 0);
    ASSERT_EQ(symlink(other.c_str(), below.c_str()), 0);
    const std::string moved = std::string(tier_) + "/b";
    ASSERT_EQ(rename(names[1].c_str(), moved.c_str()), 0);
    ASSERT_EQ(symlink(moved.c_str(), names[1].c_str()), 0);
    const std::string up = "../" + std::string(tier_).substr(std::string(tier_).rfind('/') + 1);
    for (const std::string& path : {up + "/b", other + "/a"}) {
        LogRecord record;
        record.file = file_at(path.starts_with('/') ? names[2] : moved);
        append(*log, record.file, path.c_str(), Kind::kWrite, 0, 6, some_bytes(6, 3));
    }
    const auto told = file::recover_log(*log, kGeneration, tier_, folder_);
    ASSERT_TRUE(told.ok()) << told.status().message();
    EXPECT_EQ(told.value().files, 0u);
    EXPECT_EQ(kept().size(), 2u);
    for (const std::string& name : {names[2], moved})
        EXPECT_EQ(std::memcmp(bytes_of(name).data(), "before", 6), 0);
    ASSERT_EQ(unlink(below.c_str()), 0);
    ASSERT_EQ(unlink(names[1].c_str()), 0);
}

TEST_F(LogRecoveryTest, ALongNameIsCutForWhatIsKept) {
    auto log = open_log();
    LogRecord gone;
    gone.file.inode = 1;
    std::string letters;
    while (letters.size() < 254) letters += "\u00e4";
    for (const std::string& name : {std::string(235, 'n'), std::string(255, 'n'), letters}) {
        ++gone.file.inode;
        append(*log, gone.file, name.c_str(), Kind::kWrite, 0, 50, some_bytes(50, 1));
    }
    const auto told = file::recover_log(*log, kGeneration, tier_, folder_);
    ASSERT_TRUE(told.ok()) << told.status().message();
    ASSERT_EQ(kept().size(), 3u);
    for (const std::string& name : kept()) EXPECT_EQ(bytes_of(name), some_bytes(50, 1));
}

// Storage was used without it since.
TEST_F(LogRecoveryTest, ALogOfAnotherGenerationIsKeptAside) {
    const std::string a = write_file("a", 100), b = write_file("b", 100);
    const Bytes before = bytes_of(a);
    for (const uint64_t generation : {uint64_t{0}, kGeneration + 1}) {
        auto log = open_log();
        append(*log, file_at(a), "a", Kind::kWrite, 10, 100, some_bytes(50, 1));
        append(*log, file_at(b), "b", Kind::kTruncate, 0, 5);
        log = nullptr;
        log = open_log();
        const auto told = file::recover_log(*log, generation, tier_, folder_);
        ASSERT_TRUE(told.ok()) << told.status().message();
        EXPECT_EQ(bytes_of(a), before);
        EXPECT_EQ(bytes_of(b).size(), 100u);
        ASSERT_EQ(told.value().kept.size(), 2u);
        for (const std::string& line : told.value().kept)
            EXPECT_NE(line.find("the log is out of date"), std::string::npos) << line;
        EXPECT_EQ(log->size(), 0u);
        ASSERT_EQ(kept().size(), 1u);
        const Bytes lost = some_bytes(50, 1), there = bytes_of(kept()[0]);
        EXPECT_EQ(std::memcmp(&there[10], lost.data(), 50), 0);
        std::filesystem::remove(kept()[0]);
    }
}

int64_t changed_ns(const std::string& path) {
    struct stat state {};
    EXPECT_EQ(::stat(path.c_str(), &state), 0);
    return state.st_ctim.tv_sec * int64_t{1'000'000'000} + state.st_ctim.tv_nsec;
}

// By another program, after the crash. Also if the recovery itself is killed, for which stands a
// descriptor that cannot write.
TEST_F(LogRecoveryTest, AFileThatWasChangedSinceKeepsItsBytes) {
    const std::string a = write_file("a", 100), b = write_file("b", 100);
    auto log = open_log();
    for (const auto& [path, name] : {std::pair(a, "a"), std::pair(b, "b")})
        append(*log, file_at(path), name, Kind::kWrite, 10, 100, some_bytes(50, 1));
    file::LogLife life{.generation = kGeneration, .until_ns = changed_ns(b)};
    life.checksum = file::checksum_of(life);
    ASSERT_EQ(pwrite(log->descriptor(0), &life, sizeof life, file::LogLife::kOffset),
              static_cast<ssize_t>(sizeof life));
    const Bytes newer = some_bytes(100, 2);
    while (changed_ns(a) <= life.until_ns) {  // the clock of the file system has steps
        const int file = ::open(a.c_str(), O_WRONLY);
        ASSERT_EQ(pwrite(file, newer.data(), 100, 0), 100);
        ::close(file);
    }
    for (const bool killed : {true, true, false}) {
        log = nullptr;
        log = open_log();
        const int reads = ::open(file::log_names(tier_, folder_)[1].c_str(), O_RDONLY);
        if (killed) {
            ASSERT_EQ(dup2(reads, log->descriptor(1)), log->descriptor(1));
        }
        ::close(reads);
        const auto told = file::recover_log(*log, kGeneration, tier_, folder_);
        EXPECT_EQ(told.ok(), !killed);
        EXPECT_EQ(bytes_of(a), newer);
        EXPECT_EQ(std::memcmp(&bytes_of(b)[10], some_bytes(50, 1).data(), 50), 0);
        ASSERT_EQ(kept().size(), 1u);
        EXPECT_EQ(std::memcmp(&bytes_of(kept()[0])[10], some_bytes(50, 1).data(), 50), 0);
    }
    EXPECT_EQ(log->size(), 0u);
}

}  // namespace
}  // namespace penstock
