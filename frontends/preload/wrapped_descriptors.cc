// Wrappers of the calls that make, move, place and close descriptors.
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "cached_files.h"
#include "cached_writes.h"
#include "checked_copy.h"
#include "descriptors.h"
#include "device_memory.h"
#include "feeder.h"
#include "observer.h"
#include "wrap.h"

namespace penstock::preload {
namespace {

// Forgets what a descriptor stood for that a call has just returned.
int opened(int fd) {
    forget(fd);
    return fd;
}

// The same for a copy of a descriptor.
int copied(int from, int fd) {
    if (fd != from) forget(fd);
    if (fd >= 0 && fd != from) copy_told(from, fd);
    return fd;
}

// The same for a descriptor whose open file description is not shared.
int opened_alone(int fd) {
    forget(fd);
    cached_opened(fd);
    return fd;
}

// Opens again what the process of the cache has a lease on, when that has closed it. The kernel
// refuses O_NONBLOCK at once, where it waits otherwise.
template <class Call>
int open_again(int fd, const char* path, int folder, int flags, Call call) {
    const bool leased = fd < 0 && errno == EWOULDBLOCK && (flags & O_NONBLOCK) != 0;
    if (!leased) return fd;
    close_cached_path(path, folder);
    return call();
}

// Returns whether a file is made empty after it was opened, by its descriptor, because another file
// may get its name before. The kernel does it for descriptors that only read.
bool truncates_opened(int flags) {
    const int access = flags & O_ACCMODE;
    return internal::writing_back && (flags & O_TRUNC) != 0 &&
           (access == O_WRONLY || access == O_RDWR) && (flags & O_PATH) == 0 &&
           (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL);
}

// Opens by `call`, with other flags, and makes the file empty.
template <class Call>
int open_and_truncate(const char* path, int folder, int flags, Call call) {
    struct stat before;
    const int error = errno;
    const bool was_there = kernel::call(SYS_newfstatat, folder, path, &before, 0) == 0;
    errno = error;
    const int fd = call(flags & ~O_TRUNC);
    if (fd < 0) return fd;
    forget(fd);
    if (truncate_opened(fd, was_there)) return fd;
    const int failure = errno;
    kernel::close(fd);
    errno = failure;
    return -1;
}

bool is_lock(int command) {
    return command == F_GETLK || command == F_SETLK || command == F_SETLKW ||
           command == F_OFD_GETLK || command == F_OFD_SETLK || command == F_OFD_SETLKW;
}

// A range may be given from the descriptor's position on, or from the end of the file.
void before_lock(int fd, const void* lock) {
    short whence = SEEK_SET;
    const char* theirs = static_cast<const char*>(lock) + offsetof(struct flock, l_whence);
    if (!internal::caching.load(std::memory_order_relaxed) || lock == nullptr ||
        !copy_checked(reinterpret_cast<char*>(&whence), theirs, sizeof whence, theirs))
        return;
    if (whence == SEEK_CUR) give_position(fd);
    if (whence == SEEK_END) flush_cached(fd);
}

}  // namespace

#define OPEN(name, parameters, arguments, folder)                              \
    WRAP(int, name, parameters) {                                              \
        const Next* libc = next();                                             \
        auto call = [=](int with) mutable {                                    \
            flags = with;                                                      \
            return open_again(libc->name arguments, path, folder, flags,       \
                              [=] { return libc->name arguments; });           \
        };                                                                     \
        if (truncates_opened(flags))                                           \
            return opened_alone(open_and_truncate(path, folder, flags, call)); \
        const Passed passed((flags & O_TRUNC) != 0 ? path : nullptr, folder);  \
        if (passed.refuses()) return -1;                                       \
        return opened_alone(call(flags));                                      \
    }

OPEN(open, (const char* path, int flags, mode_t mode), (path, flags, mode), AT_FDCWD)
OPEN(open64, (const char* path, int flags, mode_t mode), (path, flags, mode), AT_FDCWD)
OPEN(openat, (int folder, const char* path, int flags, mode_t mode), (folder, path, flags, mode),
     folder)
OPEN(openat64, (int folder, const char* path, int flags, mode_t mode), (folder, path, flags, mode),
     folder)

OPEN(__open_2, (const char* path, int flags), (path, flags), AT_FDCWD)
OPEN(__open64_2, (const char* path, int flags), (path, flags), AT_FDCWD)
OPEN(__openat_2, (int folder, const char* path, int flags), (folder, path, flags), folder)
OPEN(__openat64_2, (int folder, const char* path, int flags), (folder, path, flags), folder)
#define CREAT(name)                                                 \
    WRAP(int, name, (const char* path, mode_t mode)) {              \
        return wrap_open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); \
    }
CREAT(creat)
CREAT(creat64)
#define MADE(name, parameters, arguments) \
    WRAP(int, name, parameters) { return opened_alone(next()->name arguments); }
MADE(mkstemp, (char* pattern), (pattern))
MADE(mkstemp64, (char* pattern), (pattern))
MADE(mkostemp, (char* pattern, int flags), (pattern, flags))
MADE(mkostemp64, (char* pattern, int flags), (pattern, flags))
MADE(mkstemps, (char* pattern, int suffix), (pattern, suffix))
MADE(mkstemps64, (char* pattern, int suffix), (pattern, suffix))
MADE(mkostemps, (char* pattern, int suffix, int flags), (pattern, suffix, flags))
MADE(mkostemps64, (char* pattern, int suffix, int flags), (pattern, suffix, flags))

WRAP(int, open_by_handle_at, (int mount, file_handle* handle, int flags)) {
    const Next* libc = next();
    const int fd = libc->open_by_handle_at(mount, handle, flags & ~O_TRUNC);
    if (fd < 0 || (flags & O_TRUNC) == 0) return opened_alone(fd);
    forget(fd);
    if (truncate_opened(fd, true)) return opened_alone(fd);
    const int error = errno;
    kernel::close(fd);
    errno = error;
    return -1;
}

WRAP(int, dup, (int fd)) {
    const Next* libc = next();
    give_position(fd, true);
    return copied(fd, libc->dup(fd));
}
#define DUP(name, parameters, arguments)           \
    WRAP(int, name, parameters) {                  \
        const Next* libc = next();                 \
        if (from != to) release_device_file(to);   \
        give_positions_in_child();                 \
        give_position(from, true);                 \
        /* libc's own writes go there */           \
        if (to <= 2) pass_cached(from, true);      \
        return copied(from, libc->name arguments); \
    }
DUP(dup2, (int from, int to), (from, to))
DUP(__dup2, (int from, int to), (from, to))
DUP(dup3, (int from, int to, int flags), (from, to, flags))

WRAP(ssize_t, sendmsg, (int socket, const msghdr* message, int flags)) {
    const Next* libc = next();
    if (message != nullptr && message->msg_controllen > 0) give_all_positions();
    return libc->sendmsg(socket, message, flags);
}

WRAP(int, sendmmsg, (int socket, mmsghdr* messages, unsigned count, int flags)) {
    const Next* libc = next();
    give_all_positions();
    return libc->sendmmsg(socket, messages, count, flags);
}

#define LSEEK(name)                                         \
    WRAP(off_t, name, (int fd, off_t offset, int whence)) { \
        const Next* libc = next();                          \
        off_t position = seek_cached(fd, offset, whence);   \
        if (position == kNotCached) {                       \
            const KernelMoves moves(fd);                    \
            position = libc->name(fd, offset, whence);      \
        }                                                   \
        observe_position(fd, position);                     \
        return position;                                    \
    }
LSEEK(lseek)
LSEEK(lseek64)

#define FADVISE(name)                                                                         \
    WRAP(int, name, (int fd, off_t offset, off_t size, int advice)) {                         \
        const Next* libc = next();                                                            \
        if (advice <= POSIX_FADV_SEQUENTIAL) observe_advice(fd, advice == POSIX_FADV_RANDOM); \
        return libc->name(fd, offset, size, advice);                                          \
    }
FADVISE(posix_fadvise)
FADVISE(posix_fadvise64)

#define FCNTL(name)                                           \
    WRAP(int, name, (int fd, int command, void* argument)) {  \
        const Next* libc = next();                            \
        if (command == F_SETFL) change_flags(fd);             \
        if (is_lock(command)) before_lock(fd, argument);      \
        if (command != F_DUPFD && command != F_DUPFD_CLOEXEC) \
            return libc->name(fd, command, argument);         \
        give_positions_in_child();                            \
        give_position(fd, true);                              \
        return copied(fd, libc->name(fd, command, argument)); \
    }

FCNTL(fcntl)
FCNTL(fcntl64)

// Calls that make descriptors of other things. Their number may have been closed by a call of libc
// that is not wrapped, such as its close() found by dlsym().
#define MAKES(name, parameters, arguments) \
    WRAP(int, name, parameters) { return opened(next()->name arguments); }
MAKES(socket, (int domain, int type, int protocol), (domain, type, protocol))
MAKES(accept, (int listener, sockaddr* from, socklen_t* size), (listener, from, size))
MAKES(accept4, (int listener, sockaddr* from, socklen_t* size, int flags),
      (listener, from, size, flags))
MAKES(eventfd, (unsigned count, int flags), (count, flags))
MAKES(epoll_create, (int size), (size))
MAKES(epoll_create1, (int flags), (flags))
MAKES(memfd_create, (const char* name, unsigned flags), (name, flags))
MAKES(timerfd_create, (clockid_t clock, int flags), (clock, flags))
MAKES(signalfd, (int fd, const sigset_t* mask, int flags), (fd, mask, flags))
MAKES(inotify_init, (), ())
MAKES(inotify_init1, (int flags), (flags))
#define MAKES_PAIR(name, parameters, arguments)    \
    WRAP(int, name, parameters) {                  \
        const int result = next()->name arguments; \
        if (result == 0) forget(pair[0]);          \
        if (result == 0) forget(pair[1]);          \
        return result;                             \
    }
MAKES_PAIR(socketpair, (int domain, int type, int protocol, int* pair),
           (domain, type, protocol, pair))
MAKES_PAIR(pipe, (int* pair), (pair))
MAKES_PAIR(pipe2, (int* pair, int flags), (pair, flags))

#define CLOSE(name)                                     \
    WRAP(int, name, (int fd)) {                         \
        const Next* libc = next();                      \
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

WRAP(int, close_range, (unsigned first, unsigned last, int flags)) {
    const Next* libc = next();
    if (libc->close_range == nullptr) return errno = ENOSYS, -1;
    give_positions_in_child();
    constexpr int kKeeps = 2 | 4;  // CLOSE_RANGE_UNSHARE, CLOSE_RANGE_CLOEXEC
    if ((flags & kKeeps) == 0 && first <= last) release_device_files(first, last);
    forget_range(first, last);  // before: another thread may get a number at once
    return libc->close_range(first, last, flags);
}

WRAP(void, closefrom, (int first)) {
    const Next* libc = next();
    if (libc->closefrom == nullptr) return;
    give_positions_in_child();
    release_device_files(static_cast<unsigned>(first < 0 ? 0 : first), ~0u);
    forget_range(static_cast<unsigned>(first < 0 ? 0 : first), ~0u);
    libc->closefrom(first);
}

}  // namespace penstock::preload
