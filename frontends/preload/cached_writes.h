// Writes to files of a file cache that stay in its memory for a while (penstock run --write-back),
// by chunks that the service grants (abi/chunk_table.h). A call that is not served here, and sees
// or changes such a file, must find it whole: the file is written back before, by flush_cached(),
// or taken out of the cache too, by pass_cached().
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include "cached_files.h"

namespace penstock::preload {

namespace internal {
inline bool writing_back = false;  // set at start
ssize_t write_cached(int fd, const void* from, size_t size, off_t offset);
int sync_cached(int fd, bool data_only);
void flush_cached(int fd);
void flush_cached_path(const char* path, int folder, int flags);
bool pass_cached(int fd, bool for_good, bool is_mapped = false);
bool pass_cached_path(const char* path, int folder);
void close_cached_path(const char* path, int folder);
void correct_size(dev_t device, ino_t inode, off_t* size);
void flush_all();
int close_error(int fd);
}  // namespace internal

// Begins to keep writes. Call it once, at start.
void begin_writing_back();

// Writes at `offset`; -1: at the position. Returns kNotCached if the kernel must be asked. A
// failure is -1 with errno EIO: the service has ended, and earlier writes are lost.
inline ssize_t write_cached(int fd, const void* from, size_t size, off_t offset) {
    return internal::writing_back ? internal::write_cached(fd, from, size, offset) : kNotCached;
}
// As fsync(2). Returns kNotCached if the kernel must be asked.
inline int sync_cached(int fd, bool data_only) {
    return internal::writing_back ? internal::sync_cached(fd, data_only)
                                  : static_cast<int>(kNotCached);
}
inline void flush_cached(int fd) {
    if (internal::writing_back) internal::flush_cached(fd);
}
// `path` may be null; `flags` are those of utimensat(2).
inline void flush_cached_path(const char* path, int folder = -100, int flags = 0) {  // AT_FDCWD
    if (internal::writing_back) internal::flush_cached_path(path, folder, flags);
}
// `for_good`: no call of this program is served for this file from now on.
// Both return false if the service lives and did not do it: then the call must fail with EIO.
inline bool pass_cached(int fd, bool for_good = false) {
    return !internal::writing_back || internal::pass_cached(fd, for_good);
}
inline bool pass_cached_path(const char* path, int folder = -100) {  // AT_FDCWD
    return !internal::writing_back || internal::pass_cached_path(path, folder);
}
// The same for a file that is mapped. Without write-back only a mount serves a file that a program
// writes: it sees what is written by a mapping late.
inline void pass_mapped(int fd, bool is_shared, bool is_written) {
    const bool passes = internal::writing_back || (is_shared && is_written);
    if (passes && internal::caching.load(std::memory_order_relaxed))
        internal::pass_cached(fd, true, is_shared);
}
// Has the service close the file of a path, if it knows it, after a write-back. A link is not
// followed.
inline void close_cached_path(const char* path, int folder) {
    if (internal::caching.load(std::memory_order_relaxed)) [[unlikely]]
        internal::close_cached_path(path, folder);
}
// Writes back all files, if this program has written any: another program may read them.
inline void flush_before_program() {
    if (internal::writing_back) internal::flush_all();
}
// Returns the errno that close(2) of a written file must tell; 0: none.
inline int close_error(int fd) { return internal::writing_back ? internal::close_error(fd) : 0; }
// Sets the size that stat(2) tells to the one that readers see.
template <class Stat>
int corrected(int result, Stat* status) {
    if (internal::writing_back && result == 0 && S_ISREG(status->st_mode))
        internal::correct_size(status->st_dev, status->st_ino, &status->st_size);
    return result;
}

}  // namespace penstock::preload
