#include "cached_files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cached_file.h"
#include "cached_writes.h"
#include "checked_copy.h"
#include "descriptors.h"
#include "next.h"
#include "raw_calls.h"
#include "start.h"

namespace penstock::preload {
namespace {

using cache_protocol::CacheReply;
using cache_protocol::CacheRequest;
using cache_protocol::Request;

constexpr uint32_t kNoSlot = UINT32_MAX;

constexpr int kStandardMax = 2;  // by descriptors up to this one libc reads and writes itself
constexpr unsigned kReadsUntilAgain = 64;  // reads by the kernel before a file is asked for again

constinit CachedFile files[kDescriptorsMax];
std::atomic<int> highest{-1};      // no descriptor above it is alone
std::atomic<bool> leaving{false};  // no other file is served any more
char folder[PATH_MAX];             // ends with a slash
size_t folder_size = 0;

bool is_in_folder(int fd) {
    char link[] = "/proc/self/fd/0000000000";
    char* end = link + sizeof link - 1;
    char* at = end;
    for (int rest = fd; at == end || rest > 0; rest /= 10)
        *--at = static_cast<char>('0' + rest % 10);
    char name[sizeof link];
    memcpy(name, link, 14);
    memcpy(name + 14, at, static_cast<size_t>(end - at) + 1);
    char path[PATH_MAX];
    const ssize_t size = readlink(name, path, sizeof path);
    return size > static_cast<ssize_t>(folder_size) && memcmp(path, folder, folder_size) == 0;
}

// Asks for a file that is written by grants. If it cannot be, no other program's grants remain.
State find_slot_to_write(int fd, const CacheMapping& cache, const struct stat& status, bool reads,
                         CachedFile& file) {
    CacheReply reply;
    const bool answered = ask_cache(cache, {.kind = Request::kOpen, .writes = 1}, fd, &reply);
    if (!answered || reply.error == EAGAIN) return kUnknown;  // each write holds the file
    if (reply.error != 0 || reply.slot >= cache.reader.table.shape.file_count) {
        pass_cached(fd, true);
        return kIgnored;
    }
    file.use(reply.slot, reply.device, reply.inode, cache.number, status.st_dev);
    file.only_writes.store(!reads);
    return kWritten;
}

// Returns the slot of a file that the table has as it is now; kNoSlot: it has none.
uint32_t slot_of(const CacheMapping& cache, const struct stat& now) {
    const auto ns = [](const timespec& time) {
        return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
    };
    const auto& table = cache.reader.table;
    const uint32_t slot = cache.reader.find_file(now.st_dev, now.st_ino);
    const bool same = slot < table.shape.file_count &&
                      table.files[slot].mtime_ns.load() == ns(now.st_mtim) &&
                      table.files[slot].ctime_ns.load() == ns(now.st_ctim) &&
                      table.files[slot].size.load() == static_cast<uint64_t>(now.st_size);
    return same ? slot : kNoSlot;
}

// Asks for the slot of a file that is read by the table.
State ask_for_slot(int fd, const CacheMapping& cache, const struct stat& status, bool writes,
                   CachedFile& file) {
    CacheReply reply;
    const CacheRequest request{.kind = Request::kOpen, .writes = writes ? 2u : 0u};
    if (!ask_cache(cache, request, fd, &reply)) return kUnknown;
    // What it writes itself keeps a file from being served, unless it is in a mount.
    if (reply.error == EAGAIN) return writes ? kIgnored : kUnknown;
    if (reply.error != 0 || reply.slot >= cache.reader.table.shape.file_count) return kIgnored;
    file.use(reply.slot, reply.device, reply.inode, cache.number, status.st_dev);
    return kServed;
}

// Finds the slot of a file that may be read by the table, or asks for one.
State find_slot(int fd, CachedFile& file) {
    struct stat status;
    if (kernel::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || !is_in_folder(fd))
        return kIgnored;
    const int flags = kernel::fcntl(fd, F_GETFL, nullptr);
    if (flags < 0 || (flags & (O_DIRECT | O_PATH)) != 0) return kIgnored;
    const bool writes = (flags & O_ACCMODE) != O_RDONLY;
    // With write-back such a descriptor is written by grants, but where each write goes to the end
    // of the file, or to storage.
    const bool by_grants = writes && internal::writing_back && fd > kStandardMax &&
                           (flags & (O_APPEND | O_DSYNC)) == 0 && sight.load() != Sight::kLost &&
                           !leaving.load();
    if (writes && !by_grants) (void)pass_cached(fd, true);
    if ((flags & O_ACCMODE) == O_WRONLY && !by_grants) return kIgnored;
    const CacheMapping* cache = current_cache();
    if (cache == nullptr) return kUnknown;
    if (leaving.load()) return kIgnored;
    if (by_grants)
        return find_slot_to_write(fd, *cache, status, (flags & O_ACCMODE) == O_RDWR, file);
    const uint32_t slot = writes ? kNoSlot : slot_of(*cache, status);
    if (slot == kNoSlot) return ask_for_slot(fd, *cache, status, writes, file);
    file.use(slot, status.st_dev, status.st_ino, cache->number, status.st_dev);
    return kServed;
}

// Returns whether a descriptor is still of its file, and may be used as before. Closing may have
// gone unseen.
bool is_still_served(int fd, CachedFile& file, uint32_t state) {
    struct stat status;
    if (kernel::fstat(fd, &status) != 0 || status.st_dev != file.shown_device.load() ||
        status.st_ino != file.inode.load()) {
        if (!is_child_of_vfork()) forget_cached(fd);
        return false;
    }
    return state != kWritten || sight.load() != Sight::kLost;
}

}  // namespace

bool is_served(int fd, CachedFile& file) {
    uint32_t state = file.state.load(std::memory_order_acquire);
    if (state >= kServed) [[likely]] {
        if (sight.load(std::memory_order_relaxed) == Sight::kAll) [[likely]]
            return true;
        if (is_still_served(fd, file, state)) return true;
        if (state == kWritten) {
            pass_cached(fd, true);
            file.state.compare_exchange_strong(state, kUnknown);
        }
        state = file.state.load(std::memory_order_acquire);
        if (state >= kServed) return false;
    }
    if (state == kIgnored) return false;
    if (const uint32_t rest = file.rest.load(std::memory_order_relaxed); rest > 0) {
        file.rest.store(rest - 1, std::memory_order_relaxed);
        return false;
    }
    if (is_child_of_vfork()) return false;
    const State found = find_slot(fd, file);
    if (found == kUnknown) file.rest.store(kReadsUntilAgain, std::memory_order_relaxed);
    file.state.store(found, std::memory_order_release);
    return found >= kServed;
}

bool own_position(int fd, CachedFile& file, uint64_t* position) {
    *position = file.position.load();
    if (sight.load(std::memory_order_relaxed) == Sight::kLost) {
        if (*position < kKernels) internal::give_up_position(fd, true);
        return false;
    }
    while (is_kernels(*position) && (*position & kMoversMax) == 0) {
        const off_t at = kernel::call(SYS_lseek, fd, 0, SEEK_CUR);
        if (at < 0 || !is_owned(static_cast<uint64_t>(at))) return false;
        if (!file.position.compare_exchange(*position, static_cast<uint64_t>(at))) continue;
        *position = static_cast<uint64_t>(at);
    }
    return is_owned(*position);
}

CachedFile* file_at(int fd) { return fd >= 0 && fd < kDescriptorsMax ? &files[fd] : nullptr; }

size_t read_table(const CacheMapping& cache, const CachedFile& file, char* to, size_t size,
                  uint64_t offset, bool* first_use) {
    return cache.reader.read(
        file.slot.load(std::memory_order_relaxed), file.device.load(std::memory_order_relaxed),
        file.inode.load(std::memory_order_relaxed), size, offset,
        [&](size_t behind, uint64_t at, size_t part) {
            return copy_checked(to + behind, cache.arena + at, part, to + behind);
        },
        first_use);
}

namespace {

// Reads what the cache has or can get. Returns the bytes read, which may be fewer than there are.
size_t read_from_cache(CachedFile& file, char* to, size_t size, uint64_t offset) {
    const CacheMapping* cache = cache_by_number(file.cache.load(std::memory_order_relaxed));
    const uint32_t slot = file.slot.load(std::memory_order_relaxed);
    const uint64_t device = file.device.load(std::memory_order_relaxed);
    const uint64_t inode = file.inode.load(std::memory_order_relaxed);
    size_t done = 0;
    bool first_use = false;
    for (bool fetched = false;; fetched = true) {
        const size_t got = read_table(*cache, file, to + done, size - done, offset + done,
                                      &first_use);
        done += got;
        if (first_use && !fetched && got > 0) {
            tell_cache(*cache, {.kind = Request::kUsed,
                                .slot = slot,
                                .device = device,
                                .inode = inode,
                                .offset = offset,
                                .size = got});
        }
        if (done == size) return done;
        if (fetched && got == 0) return done;
        if (!cache->reader.marks.live() || !cache->reader.is_file(slot, device, inode)) {
            // It is being changed, or the service has ended. If it has ended with what was written,
            // the next write, sync or close tells so.
            if (cache->reader.marks.killed() && file.has_written.load()) return done;
            file.state.store(kUnknown);
            file.rest.store(kReadsUntilAgain);
            return done;
        }
        if (offset + done >= cache->reader.size_of(slot)) return done;
        CacheReply reply;
        const CacheRequest request{.kind = Request::kFetch,
                                   .slot = slot,
                                   .device = device,
                                   .inode = inode,
                                   .offset = offset + done,
                                   .size = size - done};
        if (is_child_of_vfork() || !ask_cache(*cache, request, -1, &reply) || reply.error != 0 ||
            reply.size == 0) {
            if (reply.error == ESTALE) file.state.store(kUnknown);
            return done;
        }
    }
}

// Reads at an offset, from the cache and what is left from the kernel.
ssize_t read_at(int fd, CachedFile& file, void* to, size_t size, uint64_t offset) {
    auto* bytes = static_cast<char*>(to);
    const size_t done = read_from_cache(file, bytes, size, offset);
    if (done == size) return static_cast<ssize_t>(done);
    flush_cached(fd);  // what is left is perhaps not cached, and newer than below
    const ssize_t rest = kernel::pread(fd, bytes + done, size - done,
                                       static_cast<off_t>(offset + done));
    if (rest < 0) return done > 0 ? static_cast<ssize_t>(done) : kNotCached;
    return static_cast<ssize_t>(done) + rest;
}

// Reads at a position that stays with the kernel, because libc's own reads or other processes move
// it too. It is moved before the read, in one call, so that threads and processes
// that read at once get bytes of their own.
ssize_t read_at_kernels(int fd, CachedFile& file, void* to, size_t size) {
    if (is_child_of_vfork()) return kNotCached;
    const KernelMoves moves(fd);
    const CacheMapping* cache = cache_by_number(file.cache.load(std::memory_order_relaxed));
    const uint64_t file_size = cache->reader.size_of(file.slot.load(std::memory_order_relaxed));
    const off_t at = kernel::call(SYS_lseek, fd, 0, SEEK_CUR);
    if (at < 0 || at > kOffsetMax || static_cast<uint64_t>(at) >= file_size) return kNotCached;
    const uint64_t left = file_size - static_cast<uint64_t>(at);
    struct stat status;
    if (size > left &&
        (kernel::fstat(fd, &status) != 0 || static_cast<uint64_t>(status.st_size) > file_size))
        return kNotCached;  // the kernel knows more of the file
    const auto part = static_cast<off_t>(size < left ? size : left);
    const off_t end = kernel::call(SYS_lseek, fd, part, SEEK_CUR);
    if (end < part) return kNotCached;
    const ssize_t done = read_at(fd, file, to, static_cast<size_t>(part),
                                 static_cast<uint64_t>(end - part));
    const off_t moved = done < 0 ? 0 : done;
    if (moved < part) kernel::call(SYS_lseek, fd, moved - part, SEEK_CUR);
    return done;
}

uint64_t next_turn(CachedFile& file) { return kKernels + file.turn.fetch_add(1) * kTurn; }

// Gives a position that is kept here to the kernel. Other threads wait until it has it: each of two
// that gave it would put the kernel's back where it was.
void give(int fd, CachedFile& file) {
    constexpr int kTurnsMax = 1000;  // until it is clear that a fork has ended that thread
    const uint64_t all = ~(uint64_t{1} << (SIGSYS - 1));
    const int error = errno;
    uint64_t mask = 0, position = file.position.load();
    kernel::call(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, sizeof mask);
    for (int turns = 0; position < kKernels;) {
        if (position >= kGiving && ++turns <= kTurnsMax) {
            sched_yield();
            position = file.position.load();
            continue;
        }
        if (is_owned(position)) {
            if (!file.position.compare_exchange(position, position | kGiving)) continue;
            position |= kGiving;
        }
        kernel::call(SYS_lseek, fd, position & ~kGiving, SEEK_SET);
        file.position.compare_exchange(position, next_turn(file));
    }
    kernel::call(SYS_rt_sigprocmask, SIG_SETMASK, &mask, nullptr, sizeof mask);
    errno = error;
}

// Sets who has the position, where there is none here to be kept.
void set_position(int fd, CachedFile& file, uint64_t next) {
    const bool was_alone = file.position.exchange(next) != kKernelsForGood;
    const bool is_alone = next != kKernelsForGood;
    if (was_alone == is_alone) return;
    internal::alone.fetch_add(is_alone ? 1 : -1);
    int before = highest.load();
    while (is_alone && before < fd && !highest.compare_exchange_weak(before, fd)) continue;
}

}  // namespace

void begin_caching(const char* setting) {
    const char* path = strchr(setting, ':');
    if (path == nullptr || path[1] != '/') return;
    folder_size = strlen(path + 1);
    if (folder_size + 2 > sizeof folder) return;
    memcpy(folder, path + 1, folder_size);
    if (folder[folder_size - 1] != '/') folder[folder_size++] = '/';
    if (!set_cache_socket(setting, static_cast<size_t>(path - setting), internal::writing_back))
        return;
    internal::caching.store(true);
}

ssize_t internal::read_cached(int fd, void* to, size_t size, off_t offset) {
    CachedFile* file = file_at(fd);
    if (file == nullptr || size == 0 || size > kMoveMax || offset > kOffsetMax) return kNotCached;
    const int error = errno;
    ssize_t done = kNotCached;
    if (!is_served(fd, *file) || file->only_writes.load(std::memory_order_relaxed)) {
        if (offset < 0) give_up_position(fd, false);
    } else if (offset >= 0) {
        done = read_at(fd, *file, to, size, static_cast<uint64_t>(offset));
    } else {
        uint64_t position = 0;
        bool owned = own_position(fd, *file, &position);
        if (!owned) done = read_at_kernels(fd, *file, to, size);
        // Threads that read at once each get bytes of their own: one that was overtaken reads
        // again.
        for (; owned; owned = own_position(fd, *file, &position)) {
            done = read_at(fd, *file, to, size, position);
            if (done < 0) {
                give_up_position(fd, false);
                break;
            }
            if (file->position.compare_exchange(position, position + static_cast<uint64_t>(done)))
                break;
            done = kNotCached;
        }
    }
    errno = error;
    return done;
}

void cached_opened(int fd, bool by_stdio) {
    if (!internal::caching.load(std::memory_order_relaxed)) return;
    CachedFile* file = file_at(fd);
    if (file == nullptr || is_child_of_vfork()) return;
    // Before the start a fork goes unnoticed.
    set_position(fd, *file,
                 !has_started()                   ? kKernelsForGood
                 : by_stdio || fd <= kStandardMax ? kStdios
                                                  : kKernels);
    file->told.store(last_error_number());
    if (!internal::writing_back) return;
    // libc's own writes, of a shell's echo as of stdio, are not wrapped: what the cache has of a
    // file that is not written by grants must be in it before.
    const int error = errno;
    const int flags = kernel::fcntl(fd, F_GETFL, nullptr);
    if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY) (void)is_served(fd, *file);
    if (file->told.load() == 0) file->told.store(last_error_number());  // it has just connected
    errno = error;
}

bool may_serve_stream(int fd) {
    CachedFile* file = file_at(fd);
    if (file == nullptr) return false;
    const int error = errno;
    const bool serves = is_served(fd, *file) && file->state.load() == kServed;
    errno = error;
    return serves;
}

void leave_to_stdio(int fd) {
    CachedFile* file = file_at(fd);
    if (file == nullptr) return;
    internal::give_up_position(fd, false);
    uint64_t position = file->position.load();
    while (is_kernels(position) && !file->position.compare_exchange(position, kStdios)) continue;
}

// Other programs may have written to files that this one has open: it sees what is below from now
// on, so they are taken out of the table for good.
void leave_cache() {
    if (!internal::caching.load() || is_child_of_vfork()) return;
    const int error = errno;
    leaving.store(true);
    internal::give_all_positions();
    rlimit limit{};
    const bool limited = getrlimit(RLIMIT_NOFILE, &limit) == 0;
    const int end = limited && limit.rlim_cur < kDescriptorsMax ? static_cast<int>(limit.rlim_cur)
                                                                : kDescriptorsMax;
    // A thread may have begun to use a file before it saw that others are not served.
    for (int round = 0; round < 2; ++round)
        for (int fd = 0; fd < end; ++fd) (void)internal::pass_cached(fd, true);
    internal::caching.store(false);
    internal::writing_back.store(false);
    end_connections();
    errno = error;
}

bool is_cached_file(int fd) { return is_in_folder(fd); }

bool is_cached_folder(const char* start) { return strncmp(folder, start, strlen(start)) == 0; }

void forget_cached(int fd) {
    if (!internal::caching.load(std::memory_order_relaxed)) return;
    CachedFile* file = file_at(fd);
    if (file == nullptr) return;
    set_position(fd, *file, kKernelsForGood);
    file->state.store(kUnknown);
    file->rest.store(0);
    file->has_written.store(false);
    file->told.store(0);
}

void copy_told(int from, int to) {
    CachedFile *source = file_at(from), *target = file_at(to);
    if (internal::caching.load(std::memory_order_relaxed) && source != nullptr && target != nullptr)
        target->told.store(source->told.load());
}

void distrust_cached(int fd) {
    CachedFile* file = internal::caching.load(std::memory_order_relaxed) ? file_at(fd) : nullptr;
    if (file == nullptr) return;
    for (uint32_t state : {kServed, kWritten}) file->state.compare_exchange_strong(state, kUnknown);
}

void internal::give_up_position(int fd, bool for_good) {
    CachedFile* file = file_at(fd);
    if (file == nullptr) return;
    if (file->position.load() < kKernels) give(fd, *file);
    if (for_good) set_position(fd, *file, kKernelsForGood);
}

bool internal::begin_move(int fd) {
    CachedFile* file = file_at(fd);
    if (file == nullptr) return false;
    uint64_t position = file->position.load();
    for (;;) {
        if (position < kKernels) {
            give(fd, *file);
            position = file->position.load();
            continue;
        }
        const uint64_t movers = position & kMoversMax;
        if (!is_kernels(position) || movers == kMoversMax) return false;
        if (file->position.compare_exchange(position, next_turn(*file) + movers + 1)) return true;
    }
}

void internal::end_move(int fd) {
    CachedFile* file = file_at(fd);
    uint64_t position = file->position.load();
    while (is_kernels(position) && (position & kMoversMax) > 0 &&
           !file->position.compare_exchange(position, position - 1))
        continue;
}

void internal::give_all_positions() {
    for (int fd = 0; fd <= highest.load(); ++fd) give_up_position(fd, true);
}

void give_positions_in_child() {
    if (internal::alone.load(std::memory_order_relaxed) > 0 && is_child_of_vfork())
        internal::give_all_positions();
}

void change_flags(int fd) {
    CachedFile* file = internal::caching.load(std::memory_order_relaxed) ? file_at(fd) : nullptr;
    if (file == nullptr) return;
    pass_cached(fd);
    internal::give_up_position(fd, false);
    file->state.store(kUnknown);
}

off_t owned_position(int fd) {
    if (!internal::caching.load(std::memory_order_relaxed)) return -1;
    const CachedFile* file = file_at(fd);
    const uint64_t position = file == nullptr ? kKernels : file->position.load();
    return is_owned(position) ? static_cast<off_t>(position) : -1;
}

off_t seek_cached(int fd, off_t offset, int whence) {
    constexpr off_t kPlain = off_t{1} << 40;  // the kernel judges offsets beyond
    CachedFile* file = internal::caching.load(std::memory_order_relaxed) ? file_at(fd) : nullptr;
    if (file == nullptr) return kNotCached;
    uint64_t position = file->position.load();
    if (whence >= SEEK_END) flush_cached(fd);  // the kernel may know less of it than readers do
    while (is_owned(position)) {
        off_t target = whence == SEEK_CUR ? static_cast<off_t>(position) + offset : offset;
        const bool plain = (whence == SEEK_SET || whence == SEEK_CUR) && offset < kPlain &&
                           offset > -kPlain && target >= 0;
        // The kernel's own position does not matter to what it answers.
        if (!plain) {
            target = kernel::call(SYS_lseek, fd, whence == SEEK_CUR ? target : offset,
                                  whence == SEEK_CUR ? SEEK_SET : whence);
            if (target < 0) return -1;
        }
        if (file->position.compare_exchange(position, static_cast<uint64_t>(target))) return target;
    }
    return kNotCached;
}

}  // namespace penstock::preload
