// Goal: what a write to a file cache has taken is in the file afterwards, also where storage has no
// room or refuses to cut a file off, and what was reserved ahead goes back. This file replaces
// syscall(), by which the library enters the kernel: fallocate(2), ftruncate(2) and fsync(2) fail
// on demand. The default is to pass.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/prng.h"
#include "file/file_cache_fixture.h"
#include "file/write_log_fixture.h"

namespace {

struct Script {
    std::atomic<int> calls{0};
    std::atomic<int> first_failure{INT_MAX};  // the call that fails, and all after it
    std::atomic<int> error{ENOSPC};
    std::atomic<int> cut_error{0};   // of ftruncate(2); 0: it passes
    std::atomic<int> sync_error{0};  // of fsync(2); 0: it passes

    void fail_from(int call, int its_error) {
        calls = 0;
        error = its_error;
        first_failure = call;
    }
    void pass() {
        first_failure = INT_MAX;
        cut_error = sync_error = 0;
    }
};
Script script;

}  // namespace

// The library's own name for it is bound within the library, but libc's is not. ThreadSanitizer
// does not look into it: the CPU backend also calls it where a stack passes from one fiber to
// another.
extern "C" __attribute__((no_sanitize("thread"))) long syscall(long number, ...) noexcept {
    va_list list;
    va_start(list, number);
    long words[6];
    for (long& word : words) word = va_arg(list, long);
    va_end(list);
    if (number == SYS_fallocate && ++script.calls >= script.first_failure) {
        errno = script.error;
        return -1;
    }
    const int refusal = number == SYS_ftruncate ? script.cut_error.load()
                        : number == SYS_fsync   ? script.sync_error.load()
                                                : 0;
    if (refusal != 0) {
        errno = refusal;
        return -1;
    }
#if defined(__x86_64__)
    long result = number;
    register long fourth asm("r10") = words[3];
    register long fifth asm("r8") = words[4];
    register long sixth asm("r9") = words[5];
    asm volatile("syscall"
                 : "+a"(result)
                 : "D"(words[0]), "S"(words[1]), "d"(words[2]), "r"(fourth), "r"(fifth), "r"(sixth)
                 : "rcx", "r11", "memory");
#else
    register long result asm("x0") = words[0];
    register long kind asm("x8") = number;
    register long second asm("x1") = words[1];
    register long third asm("x2") = words[2];
    register long fourth asm("x3") = words[3];
    register long fifth asm("x4") = words[4];
    register long sixth asm("x5") = words[5];
    asm volatile("svc 0"
                 : "+r"(result)
                 : "r"(kind), "r"(second), "r"(third), "r"(fourth), "r"(fifth), "r"(sixth)
                 : "memory");
#endif
    if (result >= 0 || result < -4095) return result;
    errno = static_cast<int>(-result);
    return -1;
}

namespace penstock {
namespace {

class FullDiskTest : public FileCacheTest {
protected:
    void TearDown() override {
        script.pass();
        FileCacheTest::TearDown();
    }
    static struct stat described(const std::string& path) {
        struct stat state {};
        EXPECT_EQ(::stat(path.c_str(), &state), 0);
        return state;
    }
    // Waits until a file has no more blocks than its bytes need.
    static bool becomes_exact(const std::string& path) {
        for (int i = 0; i < 1000; ++i) {
            const struct stat state = described(path);
            if (state.st_blocks * 512 <= (state.st_size + 4095) / 4096 * 4096 + 4096) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        return false;
    }
};

TEST_F(FullDiskTest, TheWriteTellsThatStorageHasNoRoom) {
    for (const int error : {ENOSPC, EDQUOT, EFBIG, EIO}) {
        const std::string path = write_file("a", 5000);
        CachedFile file = open(path);
        const auto before = bytes_of(path);
        const Bytes bytes = some_bytes(100'000, 1);
        script.fail_from(1, error);
        {
            const FileSizeLimit limit(20'000);  // storage itself refuses what lies beyond
            EXPECT_EQ(file.write(bytes.data(), bytes.size(), 3000).value(), 17'000u);
            const auto refused = file.write(bytes.data(), 10, 20'000);
            EXPECT_EQ(refused.status().error_number(), EFBIG);
            EXPECT_EQ(file.size(), 20'000u);
        }
        script.pass();
        ASSERT_TRUE(file.sync().ok());
        Bytes expected(before.begin(), before.begin() + 3000);
        expected.insert(expected.end(), bytes.begin(), bytes.begin() + 17'000);
        EXPECT_EQ(bytes_of(path), expected);
        EXPECT_EQ(read(file, 100'000, 0), expected);
        EXPECT_EQ(cache_.statistics().write_errors, 0u);
    }
}

// Some of the writes go to storage at once, beside chunks that are dirty, clean or absent.
TEST_F(FullDiskTest, EachCallForRoomMayFail) {
    constexpr uint64_t kSize = 30 * kChunk;
    for (int call = 1; call <= 60; ++call) {
        const std::string path = write_file("a", call % 3 * 7 * kChunk);
        FlatFile both{open(path), bytes_of(path)};
        base::Prng prng(static_cast<uint64_t>(call));
        script.fail_from(call, call % 2 == 0 ? ENOSPC : EDQUOT);
        for (int step = 0; step < 60; ++step) {
            bool good = true;
            const uint64_t size = 1 + prng.below(3 * kChunk), offset = prng.below(kSize);
            both.write(size, offset, prng.next());
            both.expect_read(1 + prng.below(kSize), prng.below(kSize));
            if (prng.below(8) == 0) good = both.file.flush().ok();
            ASSERT_TRUE(good);
            if (prng.below(12) == 0) both.truncate(prng.below(kSize));
            if (prng.below(10) == 0) script.pass();
            if (prng.below(10) == 0) script.fail_from(1, ENOSPC);
        }
        script.pass();
        ASSERT_TRUE(both.file.sync().ok());
        ASSERT_EQ(bytes_of(path), both.flat) << "call " << call;
    }
}

TEST_F(FullDiskTest, ATruncationThatStorageRefusesLosesNothing) {
    constexpr uint64_t kSize = 30 * kChunk;
    for (const auto age : {std::chrono::milliseconds(1), std::chrono::milliseconds(100'000)}) {
        make({.dirty_age = age});
        const std::string path = write_file("a", 11 * kChunk);
        FlatFile both{open(path), bytes_of(path)};
        base::Prng prng(static_cast<uint64_t>(age.count()));
        uint64_t refused = 0;
        for (int step = 0; step < 600; ++step) {
            const uint64_t size = 1 + prng.below(3 * kChunk), offset = prng.below(kSize);
            both.write(size, offset, prng.next());
            if (prng.below(2) == 0) both.expect_read(1 + prng.below(kSize), prng.below(kSize));
            script.cut_error = prng.below(2) == 0 ? EROFS : EIO;
            const uint64_t cut = prng.below(2 * both.flat.size());
            EXPECT_EQ(both.file.truncate(cut).error_number(), script.cut_error);
            refused += cut < both.flat.size();
            script.pass();
            ASSERT_EQ(both.file.size(), both.flat.size());
            both.expect_read(kSize, prng.below(kSize));
            if (prng.below(8) == 0) both.truncate(prng.below(kSize));
            if (prng.below(30) == 0) {
                ASSERT_TRUE(both.file.flush().ok());
                ASSERT_EQ(bytes_of(path), both.flat);
            }
            if (HasFatalFailure()) return;
        }
        EXPECT_GT(refused, 100u);
        ASSERT_TRUE(both.file.sync().ok());
        ASSERT_EQ(bytes_of(path), both.flat);
    }
}

TEST_F(FullDiskTest, ARefusedTruncationBesideWritersLosesNothing) {
    make({.dirty_age = std::chrono::milliseconds(1)});
    const std::string path = write_file("a", 200 * kPiece);
    script.cut_error = EROFS;
    const Bytes expected = use_pieces_at_once(path, 200, 1000, 0, [](base::Prng& prng, auto& file) {
        if (prng.below(8) == 0) {
            EXPECT_FALSE(file.truncate(prng.below(200 * kPiece)).ok());
        }
        if (prng.below(20) == 0) {
            EXPECT_TRUE(file.sync().ok());
        }
    });
    script.pass();
    const CachedFile file = open(path);
    EXPECT_EQ(read(file, expected.size() + 1, 0), expected);
    ASSERT_TRUE(file.sync().ok());
    EXPECT_EQ(bytes_of(path), expected);
}

class RefusedInLogTest : public WriteLogTest {
protected:
    void TearDown() override {
        script.pass();
        WriteLogTest::TearDown();
    }
    // Returns what a file has after a crash of the process: the next cache finds a copy of the log.
    Bytes recovered(const std::string& path) {
        const std::string copy = std::string(tier_) + "/copy";
        std::filesystem::remove_all(copy);
        std::filesystem::create_directory(copy);
        for (const std::string& name : file::log_names(tier_, folder_))
            std::filesystem::copy_file(name, copy + name.substr(name.rfind('/')));
        const auto next = FileCache::create({.devices = {device_},
                                             .size = kCacheSize,
                                             .chunk_size = kChunk,
                                             .tier = copy,
                                             .tier_size = kCacheSize,
                                             .tier_root = folder_});
        EXPECT_TRUE(next.ok()) << next.status().message();
        return bytes_of(path);
    }
};

TEST_F(RefusedInLogTest, WhatWasSyncedIsThereAfterACrash) {
    for (const uint64_t size : {uint64_t{0}, uint64_t{100}, 3 * kChunk, 8 * kChunk + 7}) {
        for (const bool syncs : {false, true}) {
            SCOPED_TRACE(std::to_string(size) + (syncs ? ", synced again" : ""));
            make_with_log({.dirty_age = std::chrono::hours(1)});
            const std::string path = write_file("a", 8 * kChunk);
            FlatFile both{open_logged(path), bytes_of(path)};
            both.write(9 * kChunk, 500, size);
            ASSERT_TRUE(both.file.sync().ok());
            script.cut_error = script.sync_error = EROFS;
            EXPECT_EQ(both.file.truncate(size).error_number(), EROFS);
            script.pass();
            ASSERT_EQ(both.file.size(), both.flat.size());
            both.expect_read(both.flat.size(), 0);
            if (syncs) {
                both.write(kChunk, 7 * kChunk - 3, size + 2);
                ASSERT_TRUE(both.file.sync().ok());
            }
            EXPECT_EQ(recovered(path), both.flat);
        }
    }
}

TEST_F(FullDiskTest, ThreadsThatWriteThroughLoseNothing) {
    const std::string path = write_file("a", 0);
    std::thread toggles;
    std::atomic<bool> ends{false};
    toggles = std::thread([&] {
        for (int i = 0; !ends; ++i) {
            if (i % 2 == 0) script.fail_from(1, ENOSPC);
            if (i % 2 == 1) script.pass();
            std::this_thread::sleep_for(std::chrono::microseconds(300));
        }
    });
    ASSERT_TRUE(open(path).truncate(200 * kPiece).ok());
    ASSERT_TRUE(open(path).sync().ok());
    const Bytes expected = use_pieces_at_once(path, 200, 1500, 1, [](base::Prng& prng, auto& file) {
        const bool good = prng.below(20) > 0 || file.flush().ok();
        EXPECT_TRUE(good);
    });
    ends = true;
    toggles.join();
    script.pass();
    const CachedFile file = open(path);
    EXPECT_EQ(read(file, expected.size(), 0), expected);
    ASSERT_TRUE(file.sync().ok());
    EXPECT_EQ(bytes_of(path), expected);
}

TEST_F(FullDiskTest, WhatIsNotPromisedIsWrittenBackAtTheClose) {
    make({.dirty_age = std::chrono::hours(1)});
    const std::string path = write_file("a", 0);
    const CachedFile file = open(path);
    const Bytes bytes = some_bytes(50'000, 2);
    ASSERT_TRUE(file.write(bytes.data(), 1000, 0).ok());
    ASSERT_TRUE(file.finish().ok());
    EXPECT_EQ(described(path).st_size, 0);  // it is promised
    script.fail_from(1, EOPNOTSUPP);
    ASSERT_EQ(file.write(bytes.data(), bytes.size(), 0).value(), bytes.size());
    EXPECT_EQ(described(path).st_size, 0);
    {
        const FileSizeLimit limit(30'000);
        EXPECT_EQ(file.finish().error_number(), EFBIG);
        EXPECT_EQ(file.finish().error_number(), EFBIG);  // each close tells it
    }
    EXPECT_TRUE(file.finish().ok());
    EXPECT_EQ(bytes_of(path), bytes);
    EXPECT_EQ(cache_.statistics().dirty_size, 0u);
}

TEST_F(FullDiskTest, NoFileGrowsBeyondWhatStorageCanHave) {
    const std::string path = write_file("a", 10);
    const CachedFile file = open(path);
    for (const int error : {0, EOPNOTSUPP}) {
        script.pass();
        if (error != 0) script.fail_from(1, error);
        for (const uint64_t offset :
             {uint64_t{1} << 62, (uint64_t{1} << 62) - 1, uint64_t{1} << 56})
            EXPECT_EQ(file.write("1", 1, offset).status().error_number(), EFBIG) << offset;
    }
    EXPECT_EQ(file.size(), 10u);
    EXPECT_EQ(cache_.statistics().dirty_size, 0u);
}

TEST_F(FullDiskTest, WhatWasReservedAheadGoesBack) {
    make({.dirty_age = std::chrono::milliseconds(50)});
    const std::string path = write_file("a", 0);
    CachedFile file = open(path);
    const Bytes bytes = some_bytes(3 << 20, 3);
    script.calls = 0;
    for (uint64_t at = 0; at < bytes.size(); at += 1 << 10)
        ASSERT_EQ(file.write(&bytes[at], 1 << 10, at).value(), 1u << 10);
    EXPECT_LT(script.calls, 100);
    EXPECT_LE(described(path).st_blocks * 512, 7 << 20);
    EXPECT_TRUE(becomes_exact(path)) << described(path).st_blocks;
    EXPECT_EQ(bytes_of(path), bytes);
    // It goes on where it was, and what it writes then is promised too.
    ASSERT_TRUE(file.write(bytes.data(), 100'000, bytes.size()).ok());
    file = CachedFile();
    EXPECT_TRUE(becomes_exact(path));
    EXPECT_EQ(described(path).st_size, static_cast<off_t>(bytes.size()) + 100'000);
}

TEST_F(FullDiskTest, FilesThatNothingNeedsAreClosedAtOnce) {
    make({.dirty_age = std::chrono::hours(1)});
    const Bytes bytes = some_bytes(1 << 20, 3);
    const auto is_open_to_write = [](const std::string& path) {
        const int descriptor = ::open(path.c_str(), O_RDONLY);
        const bool refused = fcntl(descriptor, F_SETLEASE, F_RDLCK) != 0;
        close(descriptor);
        return refused;
    };
    for (int i = 0; i < 5; ++i) {
        const std::string path = write_file(("a" + std::to_string(i)).c_str(), 0);
        CachedFile file = open(path);
        for (uint64_t at = 0; at < bytes.size(); at += 64 << 10)
            ASSERT_TRUE(file.write(&bytes[at], 64 << 10, at).ok());
        ASSERT_TRUE(file.flush().ok());
        cache_.close_unused();
        EXPECT_TRUE(is_open_to_write(path));
        file = CachedFile();
        cache_.close_unused();
        EXPECT_FALSE(is_open_to_write(path));
        EXPECT_LE(described(path).st_blocks * 512, (1 << 20) + 4096);  // and a block of extents
    }
}

TEST_F(FullDiskTest, NothingIsTakenFromAFileThatAnotherProgramWrites) {
    make({.dirty_age = std::chrono::milliseconds(20)});
    const std::string path = write_file("a", 0);
    const Bytes bytes = some_bytes(1 << 20, 4);
    const int other = ::open(path.c_str(), O_WRONLY | O_APPEND);
    {
        const CachedFile file = open(path);
        for (uint64_t at = 0; at < bytes.size(); at += 4 << 10)
            ASSERT_TRUE(file.write(&bytes[at], 4 << 10, at).ok());
        ASSERT_TRUE(file.sync().ok());
    }
    Bytes expected = bytes;
    for (int i = 0; i < 100; ++i) {
        ASSERT_EQ(::write(other, bytes.data(), 100), 100);
        expected.insert(expected.end(), bytes.begin(), bytes.begin() + 100);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ::close(other);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_EQ(bytes_of(path), expected);
}

}  // namespace
}  // namespace penstock
