// Wrappers of the libc functions that a program calls. Each calls the function that would have been
// called without this library, and returns its result and its errno.
//
// A wrapper has its name as an assembler label: libc's headers declare the names with exception
// specifications and ellipses that a definition would have to repeat. Functions with an ellipsis
// are defined, and called, without: the ABIs of x86-64 and of 64-bit Arm pass such arguments alike.
#include <alloca.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include <atomic>

#include "cache_connections.h"
#include "cached_files.h"
#include "cached_writes.h"
#include "descriptors.h"
#include "device_memory.h"
#include "environment.h"
#include "feeder.h"
#include "next.h"
#include "observer.h"
#include "service_library.h"
#include "trace.h"

extern char** environ;

// Tells libpenstock that it is a guest in this program, whose environment it must not change.
extern "C" [[gnu::visibility("default")]] const int penstock_preloaded = 1;

namespace penstock::preload {
namespace {

// Runs before the constructors of the program. Libraries that the program is linked with may be
// initialized earlier, and may call any wrapper.
[[gnu::constructor(101)]] void start() {
    next();
    begin();
}

}  // namespace

void begin() {
    static std::atomic<bool> begun{false};
    if (environ == nullptr || begun.exchange(true)) return;
    begin_descriptors();
    begin_service();
    keep_settings();
    const char* feed = getenv("PENSTOCK_FEED");
    if (feed != nullptr && *feed == '1') {
        begin_feeding();
        begin_observing();
    }
    const char* cache = getenv("PENSTOCK_CACHE");
    const char* write_back = getenv("PENSTOCK_WRITE_BACK");
    if (cache != nullptr && write_back != nullptr && *write_back == '1') begin_writing_back();
    if (cache != nullptr) begin_caching(cache);
    const char* path = getenv("PENSTOCK_TRACE");
    if (path == nullptr || *path == '\0') return;
    const char* why = begin_trace(path);
    if (why != nullptr) fprintf(stderr, "penstock: %s: cannot be traced to: %s\n", path, why);
}

namespace {

// Records a transfer of `moved` bytes that began at `offset` of the file.
ssize_t at_offset(char operation, int fd, off_t offset, ssize_t moved) {
    if (operation == 'r') observe_read(fd, offset, moved);
    if (moved <= 0 || !traces()) return moved;
    const FileName* file = file_of(fd);
    if (file == nullptr) return moved;
    record(operation, *file, static_cast<uint64_t>(offset), static_cast<uint64_t>(moved));
    return moved;
}

// Records a transfer of `moved` bytes that ended at the file's position.
ssize_t at_position(char operation, int fd, ssize_t moved) {
    if (operation == 'r') observe_read(fd, -1, moved);
    if (moved <= 0 || !traces()) return moved;
    const FileName* file = file_of(fd);
    if (file == nullptr) return moved;
    const int error = errno;
    off_t end = owned_position(fd);
    if (end < 0) end = syscall(SYS_lseek, fd, 0, SEEK_CUR);
    errno = error;
    if (end < moved) return moved;
    record(operation, *file, static_cast<uint64_t>(end - moved), static_cast<uint64_t>(moved));
    return moved;
}

// Records one side of a transfer between descriptors; `offset` points behind it, or is null.
void one_side(char operation, int fd, const off_t* offset, ssize_t moved) {
    if (offset == nullptr) {
        at_position(operation, fd, moved);
    } else if (moved > 0) {
        at_offset(operation, fd, *offset - moved, moved);
    }
}

// Gives the position of `in` to the kernel, for a call that has no offset of its own.
void take_position(int in, const off_t* offset, int out) {
    flush_cached(in);
    pass_cached(out);
    if (offset == nullptr) give_position(in);
    give_position(out);
}

ssize_t both_sides(int in, const off_t* in_offset, int out, const off_t* out_offset,
                   ssize_t moved) {
    one_side('r', in, in_offset, moved);
    one_side('w', out, out_offset, moved);
    return moved;
}

// Moves bytes by libc's `call`, or by the service if the memory is a GPU's.
constexpr off_t kAtPosition = INT64_MIN;

template <class Call>
ssize_t moved(int fd, const void* memory, size_t size, off_t offset, bool write, Call call) {
    auto* at = const_cast<void*>(memory);
    if (offset < 0 && offset != kAtPosition) return call();  // an error
    if (offset == kAtPosition) offset = -1;
    if (!write) {
        const ssize_t cached = read_cached(fd, at, size, offset);
        if (cached != kNotCached) return cached;
        flush_cached(fd);
    } else {
        const ssize_t cached = write_cached(fd, memory, size, offset);
        if (cached != kNotCached) return cached;
        if (!pass_cached(fd)) return errno = EIO, -1;
        if (offset < 0) give_position(fd);
    }
    if (may_be_device_memory(at)) [[unlikely]] {
        const ssize_t done = move_device_memory(fd, at, size, offset, write);
        if (done >= 0 || errno != EFAULT) return done;
    }
    const ssize_t done = call();
    if (done < 0 && errno == EFAULT) [[unlikely]]
        return move_device_memory(fd, at, size, offset, write);
    return done;
}

// The same for several pieces. A call with flags is the kernel's alone.
template <class Call>
ssize_t moved_pieces(int fd, const iovec* pieces, int count, off_t offset, bool write, Call call,
                     int flags = 0) {
    if (write) {
        pass_cached(fd);
    } else {
        flush_cached(fd);
    }
    if (offset < 0) give_position(fd);
    const ssize_t done = call();
    if (done < 0 && errno == EFAULT && (flags & ~RWF_HIPRI) == 0) [[unlikely]]
        return move_pieces(fd, pieces, count, offset, write);
    return done;
}

// Forgets what a descriptor stood for that a call has just returned.
int opened(int fd) {
    forget(fd);
    return fd;
}

// The same for a descriptor whose description nobody else has.
int opened_alone(int fd) {
    forget(fd);
    cached_opened(fd);
    return fd;
}

FILE* opened(FILE* file) {
    if (file == nullptr) return file;
    const int fd = fileno_unlocked(file);
    forget(fd);
    cached_opened(fd, true);
    pass_cached(fd, true);  // its own reads and writes are not wrapped
    return file;
}

}  // namespace

#define WRAP(result, name, parameters)                                                      \
    extern "C" [[gnu::visibility("default")]] result wrap_##name parameters __asm__(#name); \
    result wrap_##name parameters

#define READ(name, parameters, arguments)                                         \
    WRAP(ssize_t, name, parameters) {                                             \
        const Next* libc = next();                                                \
        if (libc == nullptr) return kernel::read(fd, to, size);                   \
        return at_position('r', fd, moved(fd, to, size, kAtPosition, false, [=] { \
                               return libc->name arguments;                       \
                           }));                                                   \
    }

#define PREAD(name, parameters, arguments)                                         \
    WRAP(ssize_t, name, parameters) {                                              \
        const Next* libc = next();                                                 \
        if (libc == nullptr) return kernel::pread(fd, to, size, offset);           \
        return at_offset('r', fd, offset, moved(fd, to, size, offset, false, [=] { \
                             return libc->name arguments;                          \
                         }));                                                      \
    }

// Wraps a call that no allocator makes while dlsym() runs.
#define SERVED(name, parameters, recorded)    \
    WRAP(ssize_t, name, parameters) {         \
        const Next* libc = next();            \
        if (libc == nullptr) return refuse(); \
        return recorded;                      \
    }

namespace {

int refuse() {
    errno = ENOSYS;
    return -1;
}

}  // namespace

READ(read, (int fd, void* to, size_t size), (fd, to, size))
READ(__read, (int fd, void* to, size_t size), (fd, to, size))
READ(__read_chk, (int fd, void* to, size_t size, size_t room), (fd, to, size, room))
PREAD(pread, (int fd, void* to, size_t size, off_t offset), (fd, to, size, offset))
PREAD(pread64, (int fd, void* to, size_t size, off_t offset), (fd, to, size, offset))
PREAD(__pread64, (int fd, void* to, size_t size, off_t offset), (fd, to, size, offset))
PREAD(__pread_chk, (int fd, void* to, size_t size, off_t offset, size_t room),
      (fd, to, size, offset, room))
PREAD(__pread64_chk, (int fd, void* to, size_t size, off_t offset, size_t room),
      (fd, to, size, offset, room))

#define VECTORED(call, operation, write)                                                         \
    SERVED(call##v, (int fd, const iovec* pieces, int count),                                    \
           at_position(operation, fd, moved_pieces(fd, pieces, count, -1, write, [=] {           \
                           return libc->call##v(fd, pieces, count);                              \
                       })))                                                                      \
    SERVED(p##call##v, (int fd, const iovec* pieces, int count, off_t offset),                   \
           at_offset(operation, fd, offset, moved_pieces(fd, pieces, count, offset, write, [=] { \
                         return libc->p##call##v(fd, pieces, count, offset);                     \
                     })))                                                                        \
    SERVED(p##call##v64, (int fd, const iovec* pieces, int count, off_t offset),                 \
           at_offset(operation, fd, offset, moved_pieces(fd, pieces, count, offset, write, [=] { \
                         return libc->p##call##v64(fd, pieces, count, offset);                   \
                     })))                                                                        \
    SERVED(p##call##v2, (int fd, const iovec* pieces, int count, off_t offset, int flags),       \
           at_offset_or_position(                                                                \
               operation, fd, offset,                                                            \
               moved_pieces(                                                                     \
                   fd, pieces, count, offset, write,                                             \
                   [=] { return libc->p##call##v2(fd, pieces, count, offset, flags); }, flags))) \
    SERVED(                                                                                      \
        p##call##v64v2, (int fd, const iovec* pieces, int count, off_t offset, int flags),       \
        at_offset_or_position(                                                                   \
            operation, fd, offset,                                                               \
            moved_pieces(                                                                        \
                fd, pieces, count, offset, write,                                                \
                [=] { return libc->p##call##v64v2(fd, pieces, count, offset, flags); }, flags)))

namespace {

ssize_t at_offset_or_position(char operation, int fd, off_t offset, ssize_t moved) {
    return offset == -1 ? at_position(operation, fd, moved)
                        : at_offset(operation, fd, offset, moved);
}

}  // namespace

VECTORED(read, 'r', false)
VECTORED(write, 'w', true)

#define WRITE(name)                                                                \
    WRAP(ssize_t, name, (int fd, const void* from, size_t size)) {                 \
        const Next* libc = next();                                                 \
        if (libc == nullptr) return kernel::write(fd, from, size);                 \
        return at_position('w', fd, moved(fd, from, size, kAtPosition, true, [=] { \
                               return libc->name(fd, from, size);                  \
                           }));                                                    \
    }

WRITE(write)
WRITE(__write)
SERVED(pwrite, (int fd, const void* from, size_t size, off_t offset),
       at_offset('w', fd, offset, moved(fd, from, size, offset, true, [=] {
                     return libc->pwrite(fd, from, size, offset);
                 })))
SERVED(pwrite64, (int fd, const void* from, size_t size, off_t offset),
       at_offset('w', fd, offset, moved(fd, from, size, offset, true, [=] {
                     return libc->pwrite64(fd, from, size, offset);
                 })))
SERVED(__pwrite64, (int fd, const void* from, size_t size, off_t offset),
       at_offset('w', fd, offset, moved(fd, from, size, offset, true, [=] {
                     return libc->__pwrite64(fd, from, size, offset);
                 })))

SERVED(sendfile, (int out, int in, off_t* offset, size_t size),
       (take_position(in, offset, out),
        both_sides(in, offset, out, nullptr, libc->sendfile(out, in, offset, size))))
SERVED(sendfile64, (int out, int in, off_t* offset, size_t size),
       (take_position(in, offset, out),
        both_sides(in, offset, out, nullptr, libc->sendfile64(out, in, offset, size))))
SERVED(copy_file_range,
       (int in, off_t* in_offset, int out, off_t* out_offset, size_t size, unsigned flags),
       (take_position(in, in_offset, out),
        both_sides(in, in_offset, out, out_offset,
                   libc->copy_file_range(in, in_offset, out, out_offset, size, flags))))
SERVED(splice, (int in, off_t* in_offset, int out, off_t* out_offset, size_t size, unsigned flags),
       (take_position(in, in_offset, out),
        both_sides(in, in_offset, out, out_offset,
                   libc->splice(in, in_offset, out, out_offset, size, flags))))

#define OPEN(name, parameters, arguments, folder)                                              \
    WRAP(int, name, parameters) {                                                              \
        const Next* libc = next();                                                             \
        if (libc == nullptr) return kernel::openat(folder, path, flags, mode);                 \
        if ((flags & O_TRUNC) != 0 && !pass_cached_path(path, folder)) return errno = EIO, -1; \
        return opened_alone(libc->name arguments);                                             \
    }

OPEN(open, (const char* path, int flags, mode_t mode), (path, flags, mode), AT_FDCWD)
OPEN(open64, (const char* path, int flags, mode_t mode), (path, flags, mode), AT_FDCWD)
OPEN(openat, (int folder, const char* path, int flags, mode_t mode), (folder, path, flags, mode),
     folder)
OPEN(openat64, (int folder, const char* path, int flags, mode_t mode), (folder, path, flags, mode),
     folder)

#define TRACKED(result, name, parameters, arguments, failed, after) \
    WRAP(result, name, parameters) {                                \
        const Next* libc = next();                                  \
        if (libc == nullptr) return refuse(), failed;               \
        return after(libc->name arguments);                         \
    }

#define OPEN_CHECKED(name, parameters, arguments, folder)                                      \
    WRAP(int, name, parameters) {                                                              \
        const Next* libc = next();                                                             \
        if (libc == nullptr) return refuse();                                                  \
        if ((flags & O_TRUNC) != 0 && !pass_cached_path(path, folder)) return errno = EIO, -1; \
        return opened_alone(libc->name arguments);                                             \
    }
OPEN_CHECKED(__open_2, (const char* path, int flags), (path, flags), AT_FDCWD)
OPEN_CHECKED(__open64_2, (const char* path, int flags), (path, flags), AT_FDCWD)
OPEN_CHECKED(__openat_2, (int folder, const char* path, int flags), (folder, path, flags), folder)
OPEN_CHECKED(__openat64_2, (int folder, const char* path, int flags), (folder, path, flags), folder)
#define CREAT(name)                                    \
    WRAP(int, name, (const char* path, mode_t mode)) { \
        const Next* libc = next();                     \
        if (libc == nullptr) return refuse();          \
        pass_cached_path(path);                        \
        return opened_alone(libc->name(path, mode));   \
    }
CREAT(creat)
CREAT(creat64)
#define FOPEN(name)                                                  \
    WRAP(FILE*, name, (const char* path, const char* mode)) {        \
        const Next* libc = next();                                   \
        if (libc == nullptr) return refuse(), nullptr;               \
        if (mode != nullptr && *mode == 'w') pass_cached_path(path); \
        return opened(libc->name(path, mode));                       \
    }
FOPEN(fopen)
FOPEN(fopen64)
#define FREOPEN(name)                                                     \
    WRAP(FILE*, name, (const char* path, const char* mode, FILE* file)) { \
        const Next* libc = next();                                        \
        if (libc == nullptr) return refuse(), nullptr;                    \
        release_device_file(fileno_unlocked(file));                       \
        if (mode != nullptr && *mode == 'w') pass_cached_path(path);      \
        return opened(libc->name(path, mode, file));                      \
    }
FREOPEN(freopen)
FREOPEN(freopen64)
WRAP(int, dup, (int fd)) {
    const Next* libc = next();
    if (libc == nullptr) return refuse();
    give_position(fd, true);
    return opened(libc->dup(fd));
}
#define DUP(name, parameters, arguments)         \
    WRAP(int, name, parameters) {                \
        const Next* libc = next();               \
        if (libc == nullptr) return refuse();    \
        if (from != to) release_device_file(to); \
        give_positions_in_child();               \
        give_position(from, true);               \
        /* libc's own writes go there */         \
        if (to <= 2) pass_cached(from, true);    \
        return opened(libc->name arguments);     \
    }
DUP(dup2, (int from, int to), (from, to))
DUP(__dup2, (int from, int to), (from, to))
DUP(dup3, (int from, int to, int flags), (from, to, flags))

WRAP(FILE*, fdopen, (int fd, const char* mode)) {
    const Next* libc = next();
    if (libc == nullptr) return refuse(), nullptr;
    pass_cached(fd, true);
    give_position(fd, true);  // libc's own reads are not wrapped
    return libc->fdopen(fd, mode);
}

// Calls after which another process may use the descriptors of this one.
#define PASSED_ON(result, name, parameters, arguments, failed) \
    WRAP(result, name, parameters) {                           \
        const Next* libc = next();                             \
        if (libc == nullptr) return refuse(), failed;          \
        give_all_positions();                                  \
        flush_before_program();                                \
        return libc->name arguments;                           \
    }
PASSED_ON(int, system, (const char* command), (command), -1)
PASSED_ON(FILE*, popen, (const char* command, const char* mode), (command, mode), nullptr)

WRAP(pid_t, _Fork, ()) {
    const Next* libc = next();
    if (libc == nullptr) return refuse();
    give_all_positions();
    flush_before_program();
    const pid_t child = libc->_Fork();
    if (child == 0) forget_connections();  // no handlers of pthread_atfork run
    return child;
}

WRAP(ssize_t, sendmsg, (int socket, const msghdr* message, int flags)) {
    const Next* libc = next();
    if (libc == nullptr) return refuse();
    if (message != nullptr && message->msg_controllen > 0) give_all_positions();
    return libc->sendmsg(socket, message, flags);
}

WRAP(int, sendmmsg, (int socket, mmsghdr* messages, unsigned count, int flags)) {
    const Next* libc = next();
    if (libc == nullptr) return refuse();
    give_all_positions();
    return libc->sendmmsg(socket, messages, count, flags);
}

#define LSEEK(name)                                                            \
    WRAP(off_t, name, (int fd, off_t offset, int whence)) {                    \
        const Next* libc = next();                                             \
        if (libc == nullptr) return refuse();                                  \
        off_t position = seek_cached(fd, offset, whence);                      \
        if (position == kNotCached) position = libc->name(fd, offset, whence); \
        observe_position(fd, position);                                        \
        return position;                                                       \
    }
LSEEK(lseek)
LSEEK(lseek64)

#define FADVISE(name)                                                                         \
    WRAP(int, name, (int fd, off_t offset, off_t size, int advice)) {                         \
        const Next* libc = next();                                                            \
        if (libc == nullptr) return ENOSYS;                                                   \
        if (advice <= POSIX_FADV_SEQUENTIAL) observe_advice(fd, advice == POSIX_FADV_RANDOM); \
        return libc->name(fd, offset, size, advice);                                          \
    }
FADVISE(posix_fadvise)
FADVISE(posix_fadvise64)

#define FCNTL(name)                                                       \
    WRAP(int, name, (int fd, int command, void* argument)) {              \
        const Next* libc = next();                                        \
        if (libc == nullptr) return kernel::fcntl(fd, command, argument); \
        if (command == F_SETFL) change_flags(fd);                         \
        if (command != F_DUPFD && command != F_DUPFD_CLOEXEC)             \
            return libc->name(fd, command, argument);                     \
        give_positions_in_child();                                        \
        give_position(fd, true);                                          \
        return opened(libc->name(fd, command, argument));                 \
    }

FCNTL(fcntl)
FCNTL(fcntl64)

#define CLOSE(name)                                     \
    WRAP(int, name, (int fd)) {                         \
        const Next* libc = next();                      \
        if (libc == nullptr) return kernel::close(fd);  \
        release_device_file(fd);                        \
        give_positions_in_child();                      \
        const int failure = close_error(fd);            \
        forget(fd);                                     \
        const int result = libc->name(fd);              \
        if (result != 0 || failure == 0) return result; \
        errno = failure;                                \
        return -1;                                      \
    }

CLOSE(close)
CLOSE(__close)

WRAP(int, fclose, (FILE * file)) {
    const Next* libc = next();
    if (libc == nullptr) return refuse();
    const int fd = fileno_unlocked(file);
    release_device_file(fd);
    forget(fd);
    const int result = libc->fclose(file);
    return result;
}

WRAP(int, close_range, (unsigned first, unsigned last, int flags)) {
    const Next* libc = next();
    if (libc == nullptr || libc->close_range == nullptr) return refuse();
    give_positions_in_child();
    constexpr int kKeeps = 2 | 4;  // CLOSE_RANGE_UNSHARE, CLOSE_RANGE_CLOEXEC
    if ((flags & kKeeps) == 0 && first <= last) release_device_files(first, last);
    forget_range(first, last);  // before: another thread may get a number at once
    return libc->close_range(first, last, flags);
}

WRAP(void, closefrom, (int first)) {
    const Next* libc = next();
    if (libc == nullptr || libc->closefrom == nullptr) return;
    give_positions_in_child();
    release_device_files(static_cast<unsigned>(first < 0 ? 0 : first), ~0u);
    forget_range(static_cast<unsigned>(first < 0 ? 0 : first), ~0u);
    libc->closefrom(first);
}

// Calls that change or sync a file of their own accord.
#define CHANGES(name, parameters, arguments, before) \
    WRAP(int, name, parameters) {                    \
        const Next* libc = next();                   \
        if (libc == nullptr) return refuse();        \
        if (!(before)) return errno = EIO, -1;       \
        return libc->name arguments;                 \
    }
CHANGES(ftruncate, (int fd, off_t size), (fd, size), pass_cached(fd))
CHANGES(ftruncate64, (int fd, off_t size), (fd, size), pass_cached(fd))
CHANGES(truncate, (const char* path, off_t size), (path, size), pass_cached_path(path))
CHANGES(truncate64, (const char* path, off_t size), (path, size), pass_cached_path(path))
CHANGES(fallocate, (int fd, int mode, off_t offset, off_t size), (fd, mode, offset, size),
        pass_cached(fd))
CHANGES(fallocate64, (int fd, int mode, off_t offset, off_t size), (fd, mode, offset, size),
        pass_cached(fd))
CHANGES(posix_fallocate, (int fd, off_t offset, off_t size), (fd, offset, size), pass_cached(fd))
CHANGES(posix_fallocate64, (int fd, off_t offset, off_t size), (fd, offset, size), pass_cached(fd))
CHANGES(syncfs, (int fd), (fd), (flush_before_program(), true))

#define SYNC(name, data_only)                                  \
    WRAP(int, name, (int fd)) {                                \
        const Next* libc = next();                             \
        if (libc == nullptr) return refuse();                  \
        const int synced = sync_cached(fd, data_only);         \
        return synced == kNotCached ? libc->name(fd) : synced; \
    }
SYNC(fsync, false)
SYNC(fdatasync, true)

WRAP(void, sync, ()) {
    const Next* libc = next();
    if (libc == nullptr) return;
    flush_before_program();
    libc->sync();
}

#define STAT(name, parameters, arguments)               \
    WRAP(int, name, parameters) {                       \
        const Next* libc = next();                      \
        if (libc == nullptr) return refuse();           \
        return corrected(libc->name arguments, status); \
    }
STAT(stat, (const char* path, struct stat* status), (path, status))
STAT(stat64, (const char* path, struct stat64* status), (path, status))
STAT(lstat, (const char* path, struct stat* status), (path, status))
STAT(lstat64, (const char* path, struct stat64* status), (path, status))
STAT(fstat, (int fd, struct stat* status), (fd, status))
STAT(fstat64, (int fd, struct stat64* status), (fd, status))
STAT(fstatat, (int folder, const char* path, struct stat* status, int flags),
     (folder, path, status, flags))
STAT(fstatat64, (int folder, const char* path, struct stat64* status, int flags),
     (folder, path, status, flags))

WRAP(int, statx, (int folder, const char* path, int flags, unsigned mask, struct statx* status)) {
    const Next* libc = next();
    if (libc == nullptr) return refuse();
    const int result = libc->statx(folder, path, flags, mask, status);
    if (internal::writing_back && result == 0 && S_ISREG(status->stx_mode)) {
        auto size = static_cast<off_t>(status->stx_size);
        internal::correct_size(makedev(status->stx_dev_major, status->stx_dev_minor),
                               status->stx_ino, &size);
        status->stx_size = static_cast<uint64_t>(size);
    }
    return result;
}

#define MMAP(name)                                                                                \
    WRAP(void*, name, (void* at, size_t size, int protection, int flags, int fd, off_t offset)) { \
        const Next* libc = next();                                                                \
        if (libc == nullptr) return kernel::mmap(at, size, protection, flags, fd, offset);        \
        if (fd >= 0 && (flags & MAP_ANONYMOUS) == 0) pass_cached(fd, true);                       \
        void* begin = libc->name(at, size, protection, flags, fd, offset);                        \
        if (begin != MAP_FAILED) mapped(begin, size, protection, flags, fd, offset);              \
        return begin;                                                                             \
    }

MMAP(mmap)
MMAP(mmap64)

WRAP(int, munmap, (void* begin, size_t size)) {
    const Next* libc = next();
    if (libc == nullptr) return kernel::munmap(begin, size);
    unmapped(begin);
    forget_buffers();
    return libc->munmap(begin, size);
}

// Wraps a call that starts a program. `environment` is completed on the caller's stack.
#define STARTED(name, parameters, arguments)                                          \
    WRAP(int, name, parameters) {                                                     \
        const Next* libc = next();                                                    \
        if (libc == nullptr) return refuse();                                         \
        give_all_positions();                                                         \
        flush_before_program();                                                       \
        const Room room = room_for(environment);                                      \
        auto** pointers = static_cast<char**>(alloca(room.pointers * sizeof(char*))); \
        auto* text = static_cast<char*>(alloca(room.bytes));                          \
        environment = completed(environment, pointers, text);                         \
        return libc->name arguments;                                                  \
    }

STARTED(execve, (const char* path, char* const* words, char* const* environment),
        (path, words, environment))
STARTED(execvpe, (const char* file, char* const* words, char* const* environment),
        (file, words, environment))
STARTED(fexecve, (int fd, char* const* words, char* const* environment), (fd, words, environment))
STARTED(posix_spawn,
        (pid_t * pid, const char* path, const posix_spawn_file_actions_t* actions,
         const posix_spawnattr_t* attributes, char* const* words, char* const* environment),
        (pid, path, actions, attributes, words, environment))
STARTED(posix_spawnp,
        (pid_t * pid, const char* file, const posix_spawn_file_actions_t* actions,
         const posix_spawnattr_t* attributes, char* const* words, char* const* environment),
        (pid, file, actions, attributes, words, environment))

WRAP(int, execv, (const char* path, char* const* words)) {
    return wrap_execve(path, words, environ);
}
WRAP(int, execvp, (const char* file, char* const* words)) {
    return wrap_execvpe(file, words, environ);
}

// Collects the words of a call with an ellipsis, up to its null pointer, on the stack.
#define COLLECT(words, first)                                                \
    va_list list;                                                            \
    va_start(list, first);                                                   \
    size_t count = 0;                                                        \
    for (const char* each = first; each != nullptr; ++count) {               \
        each = va_arg(list, const char*);                                    \
    }                                                                        \
    va_end(list);                                                            \
    auto** words = static_cast<char**>(alloca((count + 1) * sizeof(char*))); \
    va_start(list, first);                                                   \
    words[0] = const_cast<char*>(first);                                     \
    for (size_t i = 1; i <= count; ++i) words[i] = va_arg(list, char*);

WRAP(int, execl, (const char* path, const char* word, ...)) {
    COLLECT(words, word)
    va_end(list);
    return wrap_execve(path, words, environ);
}
WRAP(int, execlp, (const char* file, const char* word, ...)) {
    COLLECT(words, word)
    va_end(list);
    return wrap_execvpe(file, words, environ);
}
WRAP(int, execle, (const char* path, const char* word, ...)) {
    COLLECT(words, word)
    char* const* environment = va_arg(list, char* const*);
    va_end(list);
    return wrap_execve(path, words, environment);
}

}  // namespace penstock::preload
