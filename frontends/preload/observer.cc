#include "observer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "descriptors.h"
#include "environment.h"
#include "next.h"
#include "service_library.h"
#include "start.h"

namespace penstock::preload {

Watch watches[kWatchedMax];

namespace {

// Which reads are worth a report. ReadAhead decides what is announced, by the same limits; this
// only spares other programs the service.
constexpr ssize_t kSizeMax = 64 << 10;  // bytes; longer reads keep storage busy by themselves
constexpr int64_t kGapMin = 4096;       // bytes between reads that the kernel does not follow
constexpr unsigned kRepeats = 4;        // equal distances in a row
constexpr uint64_t kRingSize = 1024;
// The observer looks for entries every kNapNs, and sleeps after kNapsMax naps without one. So the
// program seldom has to wake it.
constexpr long kNapNs = 200'000;
constexpr int kNapsMax = 50;

struct Entry {
    std::atomic<uint64_t> ticket{0};  // 1 + the number of the entry; 0: it is being written
    std::atomic<int> fd{0};
    std::atomic<unsigned> meaning{0};
    std::atomic<int64_t> offset{0}, size{0};
};
Entry ring[kRingSize];
std::atomic<uint64_t> tickets{0};
std::atomic<int> sleeping{0};
std::atomic<int> started{0};
bool reports_all = false;  // set at start
const char* signature = nullptr;
size_t signature_size = 0;

void wake() {
    if (sleeping.load() == 0 || sleeping.exchange(0) == 0) return;
    const int error = errno;
    kernel::call(SYS_futex, &sleeping, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    errno = error;
}

// Waits for entries behind `next`.
void wait_for_entries(uint64_t next) {
    for (int i = 0; i < kNapsMax; ++i) {
        const timespec nap{0, kNapNs};
        nanosleep(&nap, nullptr);
        if (tickets.load() != next) return;
    }
    sleeping.store(1);
    if (tickets.load() != next) return;
    kernel::call(SYS_futex, &sleeping, FUTEX_WAIT_PRIVATE, 1, nullptr, nullptr, 0);
}

void* observe_all(void*) {
    const Service* service = load_service();
    if (service == nullptr) {
        observing.store(false, std::memory_order_relaxed);
        return nullptr;
    }
    if (signature_size > 0) service->expect(signature, signature_size);
    for (uint64_t next = 0;;) {
        const uint64_t end = tickets.load();
        if (next == end) {
            wait_for_entries(next);
            continue;
        }
        if (end - next > kRingSize) next = end - kRingSize / 2;  // the others are overwritten
        const Entry& entry = ring[next++ % kRingSize];
        if (entry.ticket.load() != next) continue;
        const int fd = entry.fd.load();
        const unsigned meaning = entry.meaning.load();
        const int64_t offset = entry.offset.load(), size = entry.size.load();
        if (entry.ticket.load() != next || watches[fd].meaning.load() != meaning) continue;
        const uint64_t rest = service->observe(fd, meaning, offset, static_cast<size_t>(size));
        if (rest == UINT64_MAX) {
            watches[fd].state.store(Watch::kIgnored);
        } else if (rest > 0)
            watches[fd].rest.store(static_cast<unsigned>(rest));
    }
}

void start_observer() {
    if (started.load(std::memory_order_relaxed) != 0 || !has_started() || is_child_of_vfork())
        return;
    const int error = errno;
    int none = 0;
    if (may_be_handler(~uint64_t{0}) || !started.compare_exchange_strong(none, 1)) {
        errno = error;
        return;
    }
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);  // signals go to the program's threads
    pthread_t thread;
    if (pthread_create(&thread, nullptr, observe_all, nullptr) == 0) pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    errno = error;
}

void report(int fd, const Watch& watch, int64_t offset, int64_t size) {
    const uint64_t ticket = tickets.fetch_add(1);
    Entry& entry = ring[ticket % kRingSize];
    entry.ticket.store(0);
    entry.fd.store(fd);
    entry.meaning.store(watch.meaning.load());
    entry.offset.store(offset);
    entry.size.store(size);
    entry.ticket.store(ticket + 1);
    start_observer();
    wake();
}

// Returns whether the reads so far have a pattern that the kernel does not follow.
bool learn(Watch& watch, int64_t offset, ssize_t size) {
    const int64_t gap = offset - watch.next.load(std::memory_order_relaxed);
    watch.next.store(offset + size, std::memory_order_relaxed);
    const bool repeats = gap == watch.gap.load(std::memory_order_relaxed) &&
                         (gap < 0 || gap >= kGapMin) && size <= kSizeMax;
    const unsigned before = watch.repeats.load(std::memory_order_relaxed);
    watch.gap.store(gap, std::memory_order_relaxed);
    watch.repeats.store(repeats ? before + 1 : 0, std::memory_order_relaxed);
    return repeats && before + 1 >= kRepeats;
}

// Maps the access programs of an earlier run, before the program runs.
void map_signature(const char* path) {
    const int fd = kernel::openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    struct stat status;
    if (fd < 0) return;
    if (kernel::fstat(fd, &status) == 0 && status.st_size > 0) {
        const auto size = static_cast<size_t>(status.st_size);
        void* mapped = kernel::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (mapped != MAP_FAILED) {
            signature = static_cast<const char*>(mapped);
            signature_size = size;
        }
    }
    kernel::close(fd);
}

}  // namespace

void forget_observations() {
    if (!observing.load(std::memory_order_relaxed)) return;
    started.store(0);
    tickets.store(0);
    sleeping.store(0);
    for (Entry& entry : ring) entry.ticket.store(0);
}

void begin_observing() {
    const char* path = setting("PENSTOCK_SIGNATURE");
    if (path != nullptr && *path != '\0') map_signature(path);
    reports_all = signature_size > 0;
    if (reports_all) {
        for (int fd = 0; fd < kWatchedMax; ++fd) observe_meaning(fd);
    }
    observing.store(true, std::memory_order_relaxed);
}

void observe_other(int fd, Watch& watch, int64_t offset, ssize_t size) {
    switch (watch.state.load(std::memory_order_relaxed)) {
        case Watch::kLearning:
            if (!reports_all && !learn(watch, offset, size)) return;
            if (watch.position.load(std::memory_order_relaxed) == Watch::kInOrder)
                watch.position.store(offset + size, std::memory_order_relaxed);
            if (file_of(fd) == nullptr) {  // no regular file
                watch.state.store(Watch::kIgnored, std::memory_order_relaxed);
                return;
            }
            watch.state.store(Watch::kReported, std::memory_order_relaxed);
            [[fallthrough]];
        case Watch::kReported:
            if (const unsigned rest = watch.rest.load(std::memory_order_relaxed); rest > 0) {
                watch.rest.store(rest - 1, std::memory_order_relaxed);
                return;
            }
            report(fd, watch, offset, size);
            return;
        default:
            return;
    }
}

void observe_position(int fd, off_t position) {
    if (fd >= 0 && fd < kWatchedMax && position >= 0)
        watches[fd].position.store(position, std::memory_order_relaxed);
}

void observe_advice(int fd, bool random) {
    if (fd < 0 || fd >= kWatchedMax) return;
    watches[fd].state.store(random ? Watch::kIgnored : Watch::kLearning, std::memory_order_relaxed);
}

void observe_meaning(int fd) {
    if (fd < 0 || fd >= kWatchedMax) return;
    Watch& watch = watches[fd];
    watch.meaning.fetch_add(1, std::memory_order_relaxed);
    watch.position.store(reports_all ? 0 : Watch::kInOrder, std::memory_order_relaxed);
    watch.next.store(reports_all ? -1 : 0, std::memory_order_relaxed);
    watch.repeats.store(0, std::memory_order_relaxed);
    watch.rest.store(0, std::memory_order_relaxed);
    watch.state.store(Watch::kLearning, std::memory_order_relaxed);
}

}  // namespace penstock::preload
