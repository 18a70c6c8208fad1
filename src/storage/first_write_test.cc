// Goal: direct writes of a process that was killed while they were under way end before the next
// process writes the file: fsync says nothing of them, and no byte of theirs comes over newer ones.
#include "storage/first_write.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <liburing.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>

#include "storage/posix.h"

namespace penstock::storage {
namespace {

constexpr uint64_t kWrites = 64, kDepth = 16;
constexpr size_t kSize = 1 << 20, kFileSize = kWrites * kSize;

struct Free {
    void operator()(void* memory) const { free(memory); }
};
using Memory = std::unique_ptr<char, Free>;
Memory filled(char value) {
    Memory memory(static_cast<char*>(std::aligned_alloc(4096, kFileSize)));
    std::memset(memory.get(), value, kFileSize);
    return memory;
}

// Writes the file round and round, kDepth writes under way at a time; `next` is that of the next.
void write_for_ever(const std::string& path, const char* bytes, std::atomic<uint64_t>* next) {
    io_uring ring{};
    const int file = open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
    if (file < 0 || io_uring_queue_init(kDepth, &ring, 0) != 0) return;
    for (uint64_t i = 0;; ++i) {
        io_uring_sqe* entry = io_uring_get_sqe(&ring);
        const size_t at = i % kWrites * kSize;
        io_uring_prep_write(entry, file, bytes + at, kSize, at);
        if (io_uring_submit(&ring) != 1) return;
        next->store(i + 1);
        if (i + 1 < kDepth) continue;
        io_uring_cqe* completion = nullptr;
        if (io_uring_wait_cqe(&ring, &completion) != 0 || completion->res != int{kSize}) return;
        io_uring_cqe_seen(&ring, completion);
    }
}

// Kills a child that does so in the middle of it, and waits for its end. The number of its next
// write; 0: it could not write.
uint64_t kill_a_writer(const std::string& path, const char* bytes) {
    void* const shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                              0);
    auto* const next = new (shared) std::atomic<uint64_t>(0);
    const pid_t child = fork();
    if (child == 0) {
        write_for_ever(path, bytes, next);
        _exit(1);
    }
    // Until all writes find the page cache empty: others are left to threads, which end in time.
    bool over = false;
    while (!over && next->load() < 2 * kWrites) {
        usleep(100);
        over = waitpid(child, nullptr, WNOHANG) != 0;
    }
    if (!over) {
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
    }
    const uint64_t last = next->load();
    munmap(shared, 4096);
    return over ? 0 : last;
}

TEST(FirstWrite, DirectWritesOfAKilledProcessAreOverBeforeIt) {
    std::string path = ::testing::TempDir() + "/penstock-first-write-XXXXXX";
    const int descriptor = mkstemp(path.data());
    ASSERT_GE(descriptor, 0);
    const Memory old_bytes = filled(1), killed = filled(2), ours = filled(3), back = filled(0);
    const auto storage = open_posix();
    const auto queue = std::move(storage->make_queue(1).value());
    bool tried = true;
    for (int round = 0; round < 6 && tried; ++round) {
        ASSERT_EQ(pwrite(descriptor, old_bytes.get(), kFileSize, 0), ssize_t{kFileSize});
        ASSERT_EQ(fsync(descriptor), 0);
        const uint64_t next = kill_a_writer(path, killed.get());
        tried = next > 0;
        if (!tried) break;
        const auto file = storage->open(path, O_RDWR).value();
        for (uint64_t i = 1; i <= kWrites; ++i) {  // those that end last first
            const size_t at = (next + kWrites - i) % kWrites * kSize;
            const iovec piece{ours.get() + at, kSize};
            Operation operation{file.get(), at, {&piece, 1}};
            operation.write = true;
            ASSERT_EQ(queue->submit_and_reap(operation).bytes, kSize);
        }
        const Status synced = file->sync(false);
        EXPECT_TRUE(synced.ok()) << "round " << round << ": " << synced.message();
        posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
        ASSERT_EQ(pread(descriptor, back.get(), kFileSize, 0), ssize_t{kFileSize});
        EXPECT_EQ(std::memcmp(back.get(), ours.get(), kFileSize), 0) << "round " << round;
    }
    close(descriptor);
    unlink(path.c_str());
    if (!tried) GTEST_SKIP() << "no io_uring or no direct I/O here";
}

TEST(FirstWrite, AllWhoHaveAFileOpenShareOne) {
    const auto first = FirstWrite::of(1, 2);
    EXPECT_EQ(FirstWrite::of(1, 2), first);
    EXPECT_NE(FirstWrite::of(1, 3), first);
    EXPECT_NE(FirstWrite::of(2, 2), first);
}

TEST(FirstWrite, AFileStaysAsLongAsItIs) {
    std::string path = ::testing::TempDir() + "/penstock-first-write-XXXXXX";
    const int descriptor = mkstemp(path.data());
    ASSERT_EQ(pwrite(descriptor, "bytes", 5, 0), 5);
    FirstWrite::of(1, 4)->begin(descriptor);
    char bytes[6] = {};
    EXPECT_EQ(pread(descriptor, bytes, 6, 0), 5);
    EXPECT_STREQ(bytes, "bytes");
    close(descriptor);
    unlink(path.c_str());
}

}  // namespace
}  // namespace penstock::storage
