#include "feeder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "descriptors.h"
#include "next.h"
#include "start.h"

namespace penstock::preload {
namespace {

// Sizes in bytes. A file smaller than kMappingMin ends before reading ahead pays off. A thread
// requests a block, and then waits for it.
constexpr size_t kMappingMin = 16 << 20;
constexpr size_t kBlockSize = 1 << 20;
constexpr size_t kRequestSize = 128 << 10;
constexpr int kThreadsMax = 8;
constexpr int kFeedsMax = 64;           // mappings at once; further ones are not read ahead
constexpr uint64_t kSlowNs = 400'000;   // time for one page from which storage is slow
constexpr uint64_t kCachedNs = 20'000;  // a page that takes less was cached
constexpr int kProbesMax = 8;
constexpr int kSlowProbesMin = 2;
constexpr int kSlowProbesMax = 4;  // no further page is timed
constexpr uint64_t kWindowMax = 80ull << 30;
constexpr uint64_t kSamples = 256;  // pages of a window that are tested
constexpr long kPauseNs = 10'000'000;
constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, which older headers lack

enum State : int { kFree, kFilling, kFeeding, kStopped };

// A mapping that is read ahead. `users` counts the threads that work on it; the last one frees it.
struct Feed {
    std::atomic<int> state{kFree};
    std::atomic<int> users{0};
    std::atomic<uint64_t> number{0};  // feeds are numbered in the order of mapping
    std::atomic<bool> probed{false}, slow{false};
    std::atomic<size_t> next{0};                // where the next block begins
    std::atomic<const char*> program{nullptr};  // the program's mapping
    char* own = nullptr;  // this library's mapping of the same part of the file
    size_t size = 0;
    uint64_t window = 0;
};

Feed feeds[kFeedsMax];
std::atomic<uint64_t> numbers{0};
std::atomic<int> threads{0};
std::atomic<int> live{0};  // feeds that are not free
std::atomic<bool> feeding{false};

uint64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void pause_briefly() {
    const timespec pause{0, kPauseNs};
    nanosleep(&pause, nullptr);
}

// Reads a part of a file into the OS page cache. Errors are ignored: the program will meet them.
//
// MADV_POPULATE_READ waits for each request of the kernel before it makes the next. MADV_WILLNEED
// does not wait, but requests no more at once than the kernel's readahead of the file system, often
// 128 KiB. So it is called for the rest of the part again and again: all requests are in flight
// before the wait. Pages that are already requested cost it nothing.
void populate(char* begin, size_t size) {
    for (size_t at = 0; at + kRequestSize < size; at += kRequestSize) {
        madvise(begin + at, size - at, MADV_WILLNEED);
    }
    if (madvise(begin, size, kPopulateRead) != 0 && errno == EINVAL) {
        madvise(begin, size, MADV_WILLNEED);
    }
}

// Returns how many bytes may be read ahead: a quarter of the available memory.
uint64_t window_size() {
    char text[512];
    const int fd = kernel::openat(AT_FDCWD, "/proc/meminfo", O_RDONLY | O_CLOEXEC, 0);
    const ssize_t size = fd < 0 ? -1 : kernel::read(fd, text, sizeof text - 1);
    if (fd >= 0) kernel::close(fd);
    if (size <= 0) return kBlockSize;
    text[size] = '\0';
    const char* line = strstr(text, "MemAvailable:");
    if (line == nullptr) return kBlockSize;
    uint64_t kibibytes = 0;
    for (line += strlen("MemAvailable:"); *line == ' '; ++line) {
    }
    for (; *line >= '0' && *line <= '9'; ++line) {
        kibibytes = 10 * kibibytes + static_cast<uint64_t>(*line - '0');
    }
    const uint64_t quarter = kibibytes * 1024 / 4;
    return quarter < kWindowMax ? quarter : kWindowMax;
}

// Measures how long single pages of the mapping take, to tell whether storage is slow. One quick
// page tells that it is not: the others may have waited for what the program reads meanwhile.
// Cached pages tell nothing. The pages are declared random for the time: else the kernel would read
// megabytes around each on some disks.
void probe(Feed& feed) {
    int slow = 0;
    bool quick = false;
    madvise(feed.own, feed.size, MADV_RANDOM);
    for (int i = 0; i < kProbesMax && slow < kSlowProbesMax && !quick; ++i) {
        const size_t place = feed.size / (2 * kProbesMax) * static_cast<size_t>(2 * i + 1);
        const uint64_t begun = now_ns();
        populate(feed.own + place / 4096 * 4096, 4096);
        const uint64_t taken = now_ns() - begun;
        if (taken >= kSlowNs) ++slow;
        quick = taken >= kCachedNs && taken < kSlowNs;
    }
    madvise(feed.own, feed.size, MADV_NORMAL);
    if (slow >= kSlowProbesMin && !quick) {
        feed.slow.store(true, std::memory_order_release);
    } else {
        feed.state.store(kStopped, std::memory_order_release);
    }
}

// Returns whether the program has touched a page of [begin, end) of its mapping.
bool touched(const Feed& feed, size_t begin, size_t end) {
    const char* program = feed.program.load(std::memory_order_relaxed);
    const int fd = kernel::openat(AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0 || program == nullptr) return true;  // unknown: do not wait
    bool found = false;
    const size_t step = (end - begin) / kSamples / 4096 * 4096 + 4096;
    for (size_t at = begin; at < end && !found; at += step) {
        uint64_t entry = 0;
        const auto page = reinterpret_cast<uint64_t>(program + at) / 4096;
        if (kernel::pread(fd, &entry, sizeof entry, static_cast<off_t>(page * sizeof entry)) !=
            static_cast<ssize_t>(sizeof entry)) {
            found = true;
        }
        found = found || entry >> 63 != 0;
    }
    kernel::close(fd);
    return found;
}

// Reads one block of the feed. Waits first until the program is within a window of the block.
// Returns false when nothing is left to do.
bool feed_block(Feed& feed) {
    if (!feed.probed.exchange(true)) probe(feed);
    while (!feed.slow.load(std::memory_order_acquire)) {
        if (feed.state.load(std::memory_order_acquire) != kFeeding) return false;
        pause_briefly();
    }
    const size_t at = feed.next.fetch_add(kBlockSize, std::memory_order_relaxed);
    if (at >= feed.size) return false;
    while (at > feed.window && !touched(feed, at - feed.window, at)) {
        if (feed.state.load(std::memory_order_acquire) != kFeeding) return false;
        pause_briefly();
    }
    if (feed.state.load(std::memory_order_acquire) != kFeeding) return false;
    const size_t size = feed.size - at < kBlockSize ? feed.size - at : kBlockSize;
    populate(feed.own + at, size);
    // The pages stay in the cache. Without this, the program's munmap() would wait later for that
    // of the whole mapping here.
    madvise(feed.own + at, size, MADV_DONTNEED);
    return true;
}

// Stops using a feed; the last thread to do so frees a feed that is stopped or done.
void leave(Feed& feed) {
    feed.users.fetch_sub(1);
    while (feed.users.load() == 0) {
        int stopped = kStopped;
        if (!feed.state.compare_exchange_strong(stopped, kFilling)) return;
        if (feed.users.load() == 0) {
            kernel::call(SYS_munmap, feed.own, feed.size);
            live.fetch_sub(1, std::memory_order_relaxed);
            feed.state.store(kFree);
            return;
        }
        feed.state.store(kStopped);  // another thread uses the feed, or has just stopped
    }
}

// Returns the oldest feed, and counts the caller as its user. Returns null if there is none.
Feed* oldest() {
    Feed* found = nullptr;
    for (Feed& feed : feeds) {
        if (feed.state.load(std::memory_order_acquire) != kFeeding) continue;
        if (found == nullptr || feed.number.load() < found->number.load()) found = &feed;
    }
    if (found == nullptr) return nullptr;
    found->users.fetch_add(1, std::memory_order_acq_rel);
    if (found->state.load(std::memory_order_acquire) == kFeeding) return found;
    leave(*found);
    return nullptr;
}

void* work(void*) {
    // A table of descriptors of its own: what it opens is not seen by the program. Where the kernel
    // cannot (before Linux 5.9), it shares the program's.
    constexpr unsigned kUnshare = 2;  // CLOSE_RANGE_UNSHARE
    kernel::call(SYS_close_range, 0u, ~0u, kUnshare);
    for (;;) {
        while (Feed* feed = oldest()) {
            const bool more = feed_block(*feed);
            int expected = kFeeding;
            if (!more) feed->state.compare_exchange_strong(expected, kStopped);
            leave(*feed);
        }
        threads.fetch_sub(1);
        // A feed may have been added before the subtraction, when all threads seemed to run.
        Feed* feed = oldest();
        if (feed == nullptr) return nullptr;
        leave(*feed);
        if (threads.fetch_add(1) >= kThreadsMax) {
            threads.fetch_sub(1);
            return nullptr;
        }
    }
}

void start_threads() {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);  // signals go to the program's threads
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    while (threads.fetch_add(1) < kThreadsMax) {
        pthread_t thread;
        if (pthread_create(&thread, &detached, work, nullptr) != 0) break;
    }
    threads.fetch_sub(1);
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

}  // namespace

void begin_feeding() { feeding.store(true, std::memory_order_release); }

void feed_mappings() {
    if (live.load() > 0) start_threads();
}

void forget_feeds() {
    if (!feeding.load(std::memory_order_relaxed)) return;
    threads.store(0);
    live.store(0);
    for (Feed& feed : feeds) {
        feed.users.store(0);
        feed.state.store(kFree);
    }
}

void mapped(void* begin, size_t size, int protection, int flags, int fd, off_t offset) {
    if (fd < 0 || size < kMappingMin || !feeding.load(std::memory_order_acquire)) return;
    const bool shared_write = (flags & MAP_SHARED) != 0 && (protection & PROT_WRITE) != 0;
    if ((flags & MAP_ANONYMOUS) != 0 || (protection & PROT_READ) == 0 || shared_write) return;
    const int error = errno;
    struct stat status;
    if (is_child_of_vfork()) return;  // its threads would run in the parent
    if (kernel::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && offset < status.st_size) {
        const auto left = static_cast<size_t>(status.st_size - offset);
        const size_t used = left < size ? left : size;
        for (Feed& feed : feeds) {
            int none = kFree;
            if (used < kMappingMin) break;
            if (!feed.state.compare_exchange_strong(none, kFilling)) continue;
            const long own = kernel::call(SYS_mmap, nullptr, used, PROT_READ, MAP_PRIVATE, fd,
                                          offset);
            if (own == -1) {
                feed.state.store(kFree);
                break;
            }
            feed.own = reinterpret_cast<char*>(own);
            feed.size = used;
            feed.window = window_size();
            feed.program.store(static_cast<const char*>(begin));
            feed.probed.store(false);
            feed.slow.store(false);
            feed.next.store(0);
            feed.number.store(numbers.fetch_add(1));
            live.fetch_add(1, std::memory_order_relaxed);
            feed.state.store(kFeeding, std::memory_order_release);
            if (has_started()) start_threads();
            break;
        }
    }
    errno = error;
}

void unmapped(const void* begin) {
    if (live.load(std::memory_order_relaxed) == 0) return;
    for (Feed& feed : feeds) {
        int expected = kFeeding;
        if (feed.program.load(std::memory_order_relaxed) != begin ||
            feed.state.load(std::memory_order_acquire) != kFeeding) {
            continue;
        }
        feed.users.fetch_add(1, std::memory_order_acq_rel);
        if (feed.program.load() == begin) feed.state.compare_exchange_strong(expected, kStopped);
        leave(feed);
    }
}

}  // namespace penstock::preload
