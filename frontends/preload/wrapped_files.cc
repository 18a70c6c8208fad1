// Wrappers of the calls that change, sync, describe and map files.
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include "cached_file.h"
#include "cached_files.h"
#include "cached_writes.h"
#include "checked_copy.h"
#include "device_memory.h"
#include "feeder.h"
#include "wrap.h"

namespace penstock::preload {
// Calls that change a file of their own accord.
#define CHANGES(name, parameters, arguments, file) \
    WRAP(int, name, parameters) {                  \
        const Next* libc = next();                 \
        const Passed passed(file);                 \
        if (passed.refuses()) return -1;           \
        return libc->name arguments;               \
    }
#define FTRUNCATE(name)                                      \
    WRAP(int, name, (int fd, off_t size)) {                  \
        const Next* libc = next();                           \
        const int done = truncate_cached(fd, size);          \
        if (done != kNotCached) return done;                 \
        const Passed passed(fd);                             \
        return passed.refuses() ? -1 : libc->name(fd, size); \
    }
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)
CHANGES(truncate, (const char* path, off_t size), (path, size), path)
CHANGES(truncate64, (const char* path, off_t size), (path, size), path)
CHANGES(fallocate, (int fd, int mode, off_t offset, off_t size), (fd, mode, offset, size), fd)
CHANGES(fallocate64, (int fd, int mode, off_t offset, off_t size), (fd, mode, offset, size), fd)
// They return the error, and leave errno.
#define ALLOCATES(name)                                   \
    WRAP(int, name, (int fd, off_t offset, off_t size)) { \
        const int before = errno;                         \
        const Passed passed(fd);                          \
        const int error = passed.refuses() ? errno : 0;   \
        errno = before;                                   \
        if (error != 0) return error;                     \
        return next()->name(fd, offset, size);            \
    }
ALLOCATES(posix_fallocate)
ALLOCATES(posix_fallocate64)

// Calls before which files are written back.
#define AFTER_FLUSH(name, parameters, arguments, flush) \
    WRAP(int, name, parameters) {                       \
        const Next* libc = next();                      \
        flush;                                          \
        return libc->name arguments;                    \
    }
AFTER_FLUSH(syncfs, (int fd), (fd), flush_all_cached())
AFTER_FLUSH(sync_file_range, (int fd, off_t offset, off_t size, unsigned flags),
            (fd, offset, size, flags), flush_before_sync(fd))
// A write-back after them would set the time of the change again.
AFTER_FLUSH(futimens, (int fd, const timespec* times), (fd, times), flush_cached(fd))
AFTER_FLUSH(futimes, (int fd, const timeval* times), (fd, times), flush_cached(fd))
AFTER_FLUSH(utimensat, (int folder, const char* path, const timespec* times, int flags),
            (folder, path, times, flags), flush_cached_path(path, folder, flags))
AFTER_FLUSH(futimesat, (int folder, const char* path, const timeval* times), (folder, path, times),
            path == nullptr ? flush_cached(folder) : flush_cached_path(path, folder))
AFTER_FLUSH(utimes, (const char* path, const timeval* times), (path, times),
            flush_cached_path(path))
AFTER_FLUSH(lutimes, (const char* path, const timeval* times), (path, times),
            flush_cached_path(path, AT_FDCWD, AT_SYMLINK_NOFOLLOW))
AFTER_FLUSH(utime, (const char* path, const utimbuf* times), (path, times), flush_cached_path(path))

// Calls that may change how long the program may make files.
#define LIMITS(name, parameters, arguments)      \
    WRAP(int, name, parameters) {                \
        const Next* libc = next();               \
        const int result = libc->name arguments; \
        const int error = errno;                 \
        note_size_limit();                       \
        errno = error;                           \
        return result;                           \
    }
LIMITS(setrlimit, (int resource, const rlimit* limit), (resource, limit))
LIMITS(setrlimit64, (int resource, const rlimit* limit), (resource, limit))
LIMITS(prlimit, (pid_t process, int resource, const rlimit* limit, rlimit* before),
       (process, resource, limit, before))
LIMITS(prlimit64, (pid_t process, int resource, const rlimit* limit, rlimit* before),
       (process, resource, limit, before))

// A name goes. The service closes the file first: an NFS client keeps open files under other names,
// which are in the way when the folder is removed.
#define REMOVES(name, parameters, arguments, folder, gone) \
    WRAP(int, name, parameters) {                          \
        const Next* libc = next();                         \
        close_cached_path(gone, folder);                   \
        return libc->name arguments;                       \
    }
REMOVES(unlink, (const char* path), (path), AT_FDCWD, path)
REMOVES(unlinkat, (int folder, const char* path, int flags), (folder, path, flags), folder, path)
REMOVES(remove, (const char* path), (path), AT_FDCWD, path)
REMOVES(rename, (const char* from, const char* to), (from, to), AT_FDCWD, to)
REMOVES(renameat, (int folder, const char* from, int to_folder, const char* to),
        (folder, from, to_folder, to), to_folder, to)
REMOVES(renameat2, (int folder, const char* from, int to_folder, const char* to, unsigned flags),
        (folder, from, to_folder, to, flags), to_folder, to)

#define SYNC(name, data_only)                                  \
    WRAP(int, name, (int fd)) {                                \
        const Next* libc = next();                             \
        const int synced = sync_cached(fd, data_only);         \
        return synced == kNotCached ? libc->name(fd) : synced; \
    }
SYNC(fsync, false)
SYNC(fdatasync, true)

WRAP(void, sync, ()) {
    const Next* libc = next();
    flush_all_cached();
    libc->sync();
}

#define STAT(name, parameters, arguments)               \
    WRAP(int, name, parameters) {                       \
        const Next* libc = next();                      \
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

STAT(__xstat, (int version, const char* path, struct stat* status), (version, path, status))
STAT(__xstat64, (int version, const char* path, struct stat64* status), (version, path, status))
STAT(__lxstat, (int version, const char* path, struct stat* status), (version, path, status))
STAT(__lxstat64, (int version, const char* path, struct stat64* status), (version, path, status))
STAT(__fxstat, (int version, int fd, struct stat* status), (version, fd, status))
STAT(__fxstat64, (int version, int fd, struct stat64* status), (version, fd, status))
STAT(__fxstatat, (int version, int folder, const char* path, struct stat* status, int flags),
     (version, folder, path, status, flags))
STAT(__fxstatat64, (int version, int folder, const char* path, struct stat64* status, int flags),
     (version, folder, path, status, flags))

WRAP(int, statx, (int folder, const char* path, int flags, unsigned mask, struct statx* status)) {
    const Next* libc = next();
    const int result = libc->statx(folder, path, flags, mask, status);
    if (internal::writing_back && result == 0 && S_ISREG(status->stx_mode)) {
        auto size = static_cast<off_t>(status->stx_size);
        const auto time = [](const statx_timestamp& from) {
            return timespec{from.tv_sec, static_cast<long>(from.tv_nsec)};
        };
        timespec changed = time(status->stx_mtime), described = time(status->stx_ctime);
        internal::correct(makedev(status->stx_dev_major, status->stx_dev_minor), status->stx_ino,
                          &size, &changed, &described);
        status->stx_size = static_cast<uint64_t>(size);
        status->stx_mtime.tv_sec = changed.tv_sec;
        status->stx_mtime.tv_nsec = static_cast<uint32_t>(changed.tv_nsec);
        status->stx_ctime.tv_sec = described.tv_sec;
        status->stx_ctime.tv_nsec = static_cast<uint32_t>(described.tv_nsec);
    }
    return result;
}

// Clones share blocks below, so both files must be whole there.
WRAP(int, ioctl, (int fd, unsigned long request, void* argument)) {
    const Next* libc = next();
    if (internal::writing_back && request == FICLONE) {
        flush_cached(static_cast<int>(reinterpret_cast<intptr_t>(argument)));
    } else if (internal::writing_back && request == FICLONERANGE) {
        file_clone_range range;
        const auto* from = static_cast<const char*>(argument);
        if (copy_checked(reinterpret_cast<char*>(&range), from, sizeof range, from))
            flush_cached(static_cast<int>(range.src_fd));
    } else {
        if (request == FIONREAD) {  // bytes from the position to the end
            flush_cached(fd);
            give_position(fd);
        }
        return libc->ioctl(fd, request, argument);
    }
    const Passed passed(fd);
    return passed.refuses() ? -1 : libc->ioctl(fd, request, argument);
}

#define MMAP(name)                                                                                \
    WRAP(void*, name, (void* at, size_t size, int protection, int flags, int fd, off_t offset)) { \
        const Next* libc = next();                                                                \
        if (fd >= 0 && (flags & MAP_ANONYMOUS) == 0)                                              \
            pass_mapped(fd, (flags & MAP_SHARED) != 0, (protection & PROT_WRITE) != 0);           \
        void* begin = libc->name(at, size, protection, flags, fd, offset);                        \
        if (begin != MAP_FAILED) mapped(begin, size, protection, flags, fd, offset);              \
        return begin;                                                                             \
    }

MMAP(mmap)
MMAP(mmap64)

WRAP(int, munmap, (void* begin, size_t size)) {
    const Next* libc = next();
    unmapped(begin);
    return libc->munmap(begin, size);
}

}  // namespace penstock::preload
