#include "cached_writes.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cached_file.h"
#include "checked_copy.h"
#include "descriptors.h"
#include "next.h"

namespace penstock::preload {
namespace {

using cache_protocol::CacheReply;
using cache_protocol::CacheRequest;
using cache_protocol::Request;
namespace grant = chunk_table::grant;

constexpr uint64_t kGrantAhead = 4 << 20;  // bytes that a writer is granted at once
constexpr int64_t kSecond = 1'000'000'000;
constexpr int kTurnsMax = 1000;  // for which another writer of the chunk is waited

// Behind it the kernel fails this program's writes, and sends SIGXFSZ.
std::atomic<uint64_t> size_limit{RLIM_INFINITY};

const CacheMapping& cache_of(const CachedFile& file) {
    return *cache_by_number(file.cache.load(std::memory_order_relaxed));
}

CacheRequest request_of(const CachedFile& file, Request kind) {
    CacheRequest request;
    request.kind = kind;
    request.slot = file.slot.load();
    request.device = file.device.load();
    request.inode = file.inode.load();
    return request;
}

// Asks about a file. Returns an errno; EIO if the service has ended, or does not answer.
int ask_about(const CachedFile& file, CacheRequest request) {
    CacheReply reply;
    return ask_cache(cache_of(file), request, -1, &reply) ? reply.error : EIO;
}

// The same for a descriptor, which is told of errors of write-backs that it does not know. `from`
// may be null.
int ask_for_errors(const CachedFile& file, CacheRequest request, CachedFile* from) {
    CacheReply reply;
    const uint64_t told = from == nullptr ? 0 : from->told.load();
    // A descriptor that another program opened is told only of errors that no descriptor was told
    // of.
    request.offset = told == 0 ? UINT64_MAX : told;
    if (!ask_cache(cache_of(file), request, -1, &reply)) return EIO;
    if (from != nullptr) from->told.store(reply.size);
    return reply.error;
}

// Raises a time to the present, by the clock of the kernel's file systems.
void note_time(std::atomic<int64_t>& mtime_ns) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    const int64_t now_ns = now.tv_sec * kSecond + now.tv_nsec;
    int64_t before = mtime_ns.load(std::memory_order_relaxed);
    while (before < now_ns && !mtime_ns.compare_exchange_weak(before, now_ns)) continue;
}

enum class Copied { kYes, kNoGrant, kBadMemory };

// Writes a part of one chunk.
Copied write_part(const CacheMapping& cache, CachedFile& file, const char* from, size_t size,
                  uint64_t offset) {
    const auto& reader = cache.reader;
    const uint32_t slot = file.slot.load(std::memory_order_relaxed);
    const uint64_t chunk_size = reader.table.shape.chunk_size;
    const uint32_t me = writer_number(cache);
    const auto* entry = reader.table.find(chunk_table::key_of(slot, offset / chunk_size));
    const uint64_t place = entry == nullptr ? 0 : entry->place.load(std::memory_order_acquire);
    if (place == 0 || me == 0) return Copied::kNoGrant;
    const uint32_t chunk = static_cast<uint32_t>(place) - 1;
    if (chunk >= reader.table.shape.chunk_count) return Copied::kNoGrant;
    std::atomic<uint64_t>& word = reader.marks.grants[chunk];
    uint64_t seen = word.load(std::memory_order_acquire);
    for (int turns = 0;;) {
        if ((seen & grant::kGranted) == 0) return Copied::kNoGrant;
        if (grant::writer(seen) != 0) {
            if (++turns > kTurnsMax) return Copied::kNoGrant;
            sched_yield();
            seen = word.load(std::memory_order_acquire);
        } else if (word.compare_exchange_weak(seen, grant::with_writer(seen, me),
                                              std::memory_order_acq_rel)) {
            break;
        }
    }
    const uint64_t within = offset & (chunk_size - 1);
    char* const to = cache.arena + uint64_t{chunk} * chunk_size + within;
    const bool ours = entry->place.load(std::memory_order_acquire) == place;
    const bool copied = ours && copy_checked(to, from, size, from);
    if (copied) {
        note_time(reader.marks.files[slot].mtime_ns);
        std::atomic<uint64_t>& end = reader.marks.files[slot].end;
        uint64_t before = end.load(std::memory_order_relaxed);
        while (before < offset + size &&
               !end.compare_exchange_weak(before, offset + size, std::memory_order_release))
            continue;
    }
    seen = word.load(std::memory_order_acquire);
    for (;;) {
        uint64_t next = grant::with_writer(seen, 0);
        // A copy that failed has perhaps written some.
        if (ours && (seen & grant::kGranted) != 0)
            next = grant::with_range(next, within, within + size);
        if (word.compare_exchange_weak(seen, next, std::memory_order_acq_rel)) break;
    }
    if (!ours || (seen & grant::kGranted) == 0) return Copied::kNoGrant;
    return copied ? Copied::kYes : Copied::kBadMemory;
}

// Writes what can be written by grants. Returns how many bytes.
size_t write_by_grants(CachedFile& file, const char* from, size_t size, uint64_t offset) {
    const CacheMapping& cache = cache_of(file);
    const uint64_t chunk_size = cache.reader.table.shape.chunk_size;
    size_t done = 0;
    for (int attempts = 0; done < size;) {
        const uint64_t at = offset + done, room = chunk_size - (at & (chunk_size - 1));
        const size_t part = size - done < room ? size - done : static_cast<size_t>(room);
        if (!cache.reader.marks.live()) return done;
        const Copied copied = write_part(cache, file, from + done, part, at);
        if (copied == Copied::kBadMemory) return done;
        if (copied == Copied::kYes) {
            done += part;
            attempts = 0;
            continue;
        }
        if (++attempts > 3) return done;
        internal::note_size_limit();  // another program may have set it
        if (offset + size > size_limit.load(std::memory_order_relaxed)) return done;
        CacheRequest request = request_of(file, Request::kGrant);
        request.offset = at;
        // Writes that follow one another have the next grant before they need it.
        const bool follows = (at & (chunk_size - 1)) == 0 && at > 0;
        request.size = follows || size - done > kGrantAhead ? kGrantAhead : size - done;
        CacheReply reply;
        if (!ask_cache(cache, request, -1, &reply) || reply.error != 0 || reply.size == 0)
            return done;
    }
    return done;
}

bool is_written(const CachedFile& file) {
    return file.state.load(std::memory_order_acquire) == kWritten;
}

// Returns whether the service has ended with writes of this descriptor. Says so once.
bool has_lost(CachedFile& file) {
    return is_written(file) && cache_of(file).reader.marks.killed() &&
           file.has_written.exchange(false);
}

// The same for all descriptors of a file in this process.
bool has_lost_any(const CachedFile& known) {
    bool lost = false;
    for (int fd = 0; CachedFile* const file = file_at(fd); ++fd)
        if (file->has_written.load(std::memory_order_relaxed) &&
            file->inode.load() == known.inode.load() && file->device.load() == known.device.load())
            lost |= has_lost(*file);
    return lost;
}

// Finds a file that the service knows, by what stat() tells. Returns false if it knows none.
bool find_known(dev_t device, ino_t inode, CachedFile* found) {
    const CacheMapping* cache = current_cache();
    if (cache == nullptr) return false;
    const uint32_t slot = cache->reader.find_file(device, inode);
    if (slot >= cache->reader.table.shape.file_count) return false;
    found->cache.store(cache->number);
    found->slot.store(slot);
    found->device.store(device);
    found->inode.store(inode);
    return true;
}

// Finds a file that is no longer in the table, if there was an error of a write-back since its
// descriptor was opened.
bool may_have_failed(const struct stat& status, const CachedFile* file, CachedFile* found) {
    if (file == nullptr || last_error_number() <= file->told.load()) return false;
    const CacheMapping* cache = current_cache();
    if (cache == nullptr) return false;
    found->cache.store(cache->number);
    found->device.store(status.st_dev);
    found->inode.store(status.st_ino);
    return true;
}

bool may_write(int fd) {
    const int flags = kernel::fcntl(fd, F_GETFL, nullptr);
    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

// Returns an errno: of a write-back, or EIO where the service lives and does not answer.
int pass(const CachedFile& file, cache_protocol::Passing how) {
    CacheRequest request = request_of(file, Request::kPass);
    request.writes = how;
    CacheReply reply;
    if (ask_cache(cache_of(file), request, -1, &reply)) return reply.error;
    return cache_of(file).reader.marks.live() ? EIO : 0;
}

void hold_file(const CachedFile& file, HeldFile* held) {
    held->cache = file.cache.load();
    held->device = file.device.load();
    held->inode = file.inode.load();
    held->error = pass(file, cache_protocol::kPassHeld);
    held->is_held = held->error == 0;
}

}  // namespace

void begin_writing_back() {
    internal::note_size_limit();
    internal::writing_back = true;
}

void internal::note_size_limit() {
    rlimit limit{};
    if (is_child_of_vfork()) return;  // it has a limit of its own
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0) size_limit.store(limit.rlim_cur);
}

ssize_t internal::write_cached(int fd, const void* from, size_t size, off_t offset) {
    CachedFile* file = file_at(fd);
    if (file == nullptr || size == 0 || size > kMoveMax || offset > kOffsetMax) return kNotCached;
    const int error = errno;
    if (!is_served(fd, *file) || !is_written(*file)) {
        errno = error;
        return kNotCached;
    }
    if (has_lost(*file)) {
        errno = EIO;
        return -1;
    }
    uint64_t position = static_cast<uint64_t>(offset);
    if (offset < 0) {
        // Each of several threads gets a range of its own.
        bool owned = false;
        while ((owned = own_position(fd, *file, &position)) &&
               !file->position.compare_exchange(position, position + size))
            continue;
        if (!owned) {
            errno = error;
            return kNotCached;
        }
    }
    const auto* bytes = static_cast<const char*>(from);
    const bool allowed = position + size <= size_limit.load(std::memory_order_relaxed);
    const size_t done = allowed ? write_by_grants(*file, bytes, size, position) : 0;
    if (done > 0) {
        file->has_written.store(true);
        internal::has_written.store(true);
    }
    errno = error;
    if (done == size) return static_cast<ssize_t>(done);
    if (has_lost(*file)) {
        errno = EIO;
        return -1;
    }
    // The kernel writes the rest, or says why it cannot.
    const Passed passed(fd);
    file->state.store(kUnknown);
    const ssize_t rest = passed.refuses() ? -1
                                          : kernel::call(SYS_pwrite64, fd, bytes + done,
                                                         size - done, position + done);
    const size_t moved = done + (rest > 0 ? static_cast<size_t>(rest) : 0);
    if (offset < 0 && moved < size) {
        uint64_t end = position + size;
        file->position.compare_exchange(end, position + moved);
    }
    // The memory may be a device's: then the caller copies it.
    if (moved == 0 && rest < 0 && errno == EFAULT) return kNotCached;
    return moved > 0 ? static_cast<ssize_t>(moved) : rest;
}

int internal::truncate_cached(int fd, off_t size) {
    CachedFile* file = file_at(fd);
    if (file == nullptr || size < 0 || size > kOffsetMax || is_child_of_vfork()) {
        return static_cast<int>(kNotCached);
    }
    const int error = errno;
    int failure = ESTALE;
    internal::note_size_limit();
    const bool allowed = static_cast<uint64_t>(size) <= size_limit.load(std::memory_order_relaxed);
    if (allowed && is_served(fd, *file) && is_written(*file)) {
        CacheRequest request = request_of(*file, Request::kTruncate);
        request.size = static_cast<uint64_t>(size);
        failure = ask_about(*file, request);
    }
    errno = error;
    if (failure == 0) return 0;
    if (failure == ESTALE || !cache_of(*file).reader.marks.live())
        return static_cast<int>(kNotCached);
    errno = failure;
    return -1;
}

int internal::sync_cached(int fd, bool data_only) {
    CachedFile* file = file_at(fd);
    if (file != nullptr && has_lost(*file)) {
        errno = EIO;
        return -1;
    }
    // Others may have written the file, by descriptors of their own.
    struct stat status;
    CachedFile known;
    if (kernel::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) ||
        !(find_known(status.st_dev, status.st_ino, &known) ||
          may_have_failed(status, file, &known)))
        return static_cast<int>(kNotCached);
    CacheRequest request = request_of(known, Request::kSync);
    request.size = data_only ? 1 : 0;
    const auto& marks = cache_of(known).reader.marks;
    const bool was_live = marks.live();
    const bool had_written = file != nullptr && file->has_written.exchange(false);
    const int failure = ask_for_errors(known, request, file);
    // Killed meanwhile, or with what another descriptor has written.
    if (failure != 0 && marks.killed() && (was_live || has_lost_any(known))) {
        errno = EIO;
        return -1;
    }
    const bool is_below = failure == ESTALE || !cache_of(known).reader.marks.live();
    // What another thread writes meanwhile is not among it.
    if (had_written && failure != 0 && !is_below) file->has_written.store(true);
    // What is no longer in the cache is below: the kernel syncs it.
    if (is_below) return static_cast<int>(kNotCached);
    if (failure == 0) return 0;
    errno = failure;
    return -1;
}

void internal::flush_cached(int fd) {
    struct stat status;
    CachedFile known;
    const int error = errno;
    if (kernel::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
        find_known(status.st_dev, status.st_ino, &known))
        (void)ask_about(known, request_of(known, Request::kFlush));
    errno = error;
}

namespace {

// Finds the file of a descriptor. Returns false if the service does not know it, and need not.
bool find_to_pass(int fd, bool may_be_unknown, bool is_changed, CachedFile* known) {
    struct stat status;
    if (kernel::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return false;
    if (find_known(status.st_dev, status.st_ino, known)) return true;
    // The service is told of a file that it does not know yet, lest it should serve it meanwhile.
    if (!may_be_unknown || !(is_changed || may_write(fd))) return false;
    const CacheMapping* cache = current_cache();
    if (cache == nullptr || !is_cached_file(fd)) return false;
    known->cache.store(cache->number);
    known->device.store(status.st_dev);
    known->inode.store(status.st_ino);
    return true;
}

}  // namespace

bool internal::pass_cached(int fd, bool for_good, bool is_mapped) {
    CachedFile known;
    int failure = 0;
    const int error = errno;
    if (find_to_pass(fd, for_good, is_mapped, &known)) {
        failure = pass(known, for_good ? cache_protocol::kPassForGood : cache_protocol::kPassOnce);
        if (CachedFile* file = file_at(fd)) file->state.store(kUnknown);
    }
    errno = failure == 0 ? error : failure;
    return failure == 0;
}

void internal::hold(int fd, HeldFile* held) {
    CachedFile known;
    CachedFile* file = file_at(fd);
    const int error = errno;
    // A file is ignored that was passed for good.
    const bool is_passed = file != nullptr && file->state.load() == kIgnored;
    if (find_to_pass(fd, !is_passed, false, &known)) {
        hold_file(known, held);
        if (file != nullptr) file->state.store(kUnknown);
    }
    errno = error;
}

void internal::release(const HeldFile& held) {
    const int error = errno;
    tell_cache(*cache_by_number(held.cache),
               {.kind = Request::kRelease, .device = held.device, .inode = held.inode}, true);
    errno = error;
}

namespace {

// Finds the file of a path in the cache. Returns false if the cache does not know it.
bool find_path(const char* path, int folder, int flags, CachedFile* known) {
    struct stat status;
    return path != nullptr && kernel::call(SYS_newfstatat, folder, path, &status, flags) == 0 &&
           S_ISREG(status.st_mode) && find_known(status.st_dev, status.st_ino, known);
}

}  // namespace

void internal::flush_cached_path(const char* path, int folder, int flags) {
    if (is_child_of_vfork()) return;
    CachedFile known;
    const int error = errno;
    if (find_path(path, folder, (flags & AT_SYMLINK_NOFOLLOW) | AT_EMPTY_PATH, &known))
        (void)ask_about(known, request_of(known, Request::kFlush));
    errno = error;
}

// The service is told of a file that it does not know, too: another thread may open it just now.
void internal::hold_path(const char* path, int folder, HeldFile* held) {
    const int error = errno;
    const int fd = kernel::openat(folder, path, O_PATH | O_CLOEXEC, 0);
    CachedFile known;
    const bool found = fd < 0 ? find_path(path, folder, 0, &known)
                              : find_to_pass(fd, true, true, &known);
    if (fd >= 0) kernel::close(fd);
    if (found) hold_file(known, held);
    errno = error;
}

// A file that was not there before, is empty, and that the service does not know, needs nothing:
// the service can have no bytes of it, and learns no other size.
bool internal::truncate_opened(int fd, bool was_there) {
    struct stat status;
    CachedFile known;
    if (kernel::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return true;
    if (!was_there && status.st_size == 0 && !find_known(status.st_dev, status.st_ino, &known))
        return true;
    const Passed passed(fd);
    return !passed.refuses() && kernel::call(SYS_ftruncate, fd, 0) == 0;
}

void internal::truncate_passed(int fd) {
    struct stat status;
    const int error = errno;
    if (kernel::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0 &&
        is_cached_file(fd))
        kernel::call(SYS_ftruncate, fd, 0);
    errno = error;
}

void internal::close_cached_path(const char* path, int folder) {
    if (is_child_of_vfork()) return;
    // A service that hangs would hold up each removal of many.
    static std::atomic<time_t> silent_until{0};
    constexpr time_t kSilence_s = 60;
    const int error = errno;
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    CachedFile known;
    CacheReply reply;
    const bool asks = now.tv_sec >= silent_until.load(std::memory_order_relaxed) &&
                      find_path(path, folder, AT_SYMLINK_NOFOLLOW, &known);
    if (asks && !ask_cache(cache_of(known), request_of(known, Request::kClose), -1, &reply))
        silent_until.store(now.tv_sec + kSilence_s);
    errno = error;
}

void internal::correct(dev_t device, ino_t inode, off_t* size, timespec* changed,
                       timespec* described) {
    CachedFile known;
    if (!find_known(device, inode, &known)) return;
    const auto& reader = cache_of(known).reader;
    const uint32_t slot = known.slot.load();
    *size = static_cast<off_t>(reader.size_of(slot));
    const int64_t written_ns = reader.marks.files[slot].mtime_ns.load(std::memory_order_acquire);
    if (written_ns == 0) return;
    *changed = {written_ns / kSecond, written_ns % kSecond};
    // The service sets the time of the change after it, so this one moves once more.
    if (described->tv_sec * kSecond + described->tv_nsec < written_ns) *described = *changed;
}

void internal::flush_all() {
    const CacheMapping* cache = current_cache();
    CacheReply reply;
    const int error = errno;
    if (cache != nullptr) (void)ask_cache(*cache, {.kind = Request::kFlush}, -1, &reply);
    errno = error;
}

int internal::close_error(int fd) {
    CachedFile* file = file_at(fd);
    if (file == nullptr || !file->has_written.load()) return 0;
    if (has_lost(*file)) return EIO;
    const int error = errno;
    const int failure = ask_for_errors(*file, request_of(*file, Request::kError), file);
    errno = error;
    return failure;
}

}  // namespace penstock::preload
