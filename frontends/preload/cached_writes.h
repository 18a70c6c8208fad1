// Writes to files of a file cache that stay in its memory for a while (penstock run --write-back),
// by chunks that the service grants (abi/chunk_table.h). A call that is not served here, and sees
// or changes such a file, must find it whole: the file is written back before, by flush_cached(),
// or taken out of the cache too, by Passed or pass_cached().
#pragma once

#include <errno.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "cached_files.h"

namespace penstock::preload {

struct HeldFile;
namespace internal {
inline std::atomic<bool> writing_back{false};  // set at start
inline std::atomic<bool> has_written{false};   // this program, since it flushed all files last
ssize_t write_cached(int fd, const void* from, size_t size, off_t offset);
int sync_cached(int fd, bool data_only);
void flush_cached(int fd);
void flush_cached_path(const char* path, int folder, int flags);
bool pass_cached(int fd, bool for_good, bool is_mapped = false);
void hold(int fd, HeldFile* held);
void hold_path(const char* path, int folder, HeldFile* held);
void release(const HeldFile& held);
bool truncate_opened(int fd, bool was_there);
void truncate_passed(int fd);
int truncate_cached(int fd, off_t size);
void close_cached_path(const char* path, int folder);
void correct(dev_t device, ino_t inode, off_t* size, timespec* changed, timespec* described);
void flush_all();
int close_error(int fd);
void note_size_limit();
}  // namespace internal

// Begins to keep writes. Call it once, at start.
void begin_writing_back();

// Looks how long this program may make files. Call it when the program has changed that.
inline void note_size_limit() {
    if (internal::writing_back) internal::note_size_limit();
}

// Writes at `offset`; -1: at the position. Returns kNotCached if the kernel must be asked. A
// failure is -1 with errno EIO: the service has ended, and earlier writes are lost.
inline ssize_t write_cached(int fd, const void* from, size_t size, off_t offset) {
    return internal::writing_back ? internal::write_cached(fd, from, size, offset) : kNotCached;
}
// As ftruncate(2). Returns kNotCached if the kernel must be asked.
inline int truncate_cached(int fd, off_t size) {
    return internal::writing_back ? internal::truncate_cached(fd, size)
                                  : static_cast<int>(kNotCached);
}
// As fsync(2). Returns kNotCached if the kernel must be asked.
inline int sync_cached(int fd, bool data_only) {
    return internal::caching.load(std::memory_order_relaxed) ? internal::sync_cached(fd, data_only)
                                                             : static_cast<int>(kNotCached);
}
// Writes back what any program has written to the file of a descriptor, or to any file.
inline void flush_before_sync(int fd) {
    if (internal::caching.load(std::memory_order_relaxed)) internal::flush_cached(fd);
}
inline void flush_all_cached() {
    if (internal::caching.load(std::memory_order_relaxed)) internal::flush_all();
}
inline void flush_cached(int fd) {
    if (internal::writing_back) internal::flush_cached(fd);
}
// `path` may be null; `flags` are those of utimensat(2).
inline void flush_cached_path(const char* path, int folder = -100, int flags = 0) {  // AT_FDCWD
    if (internal::writing_back) internal::flush_cached_path(path, folder, flags);
}
// Has the service write a file back and take it out of the table. `for_good`: it is not written by
// grants again. Returns false, with errno, if the file must not be changed past the cache now.
inline bool pass_cached(int fd, bool for_good = false) {
    return !internal::writing_back || internal::pass_cached(fd, for_good);
}

struct HeldFile {
    int error = 0;  // why the file must not be changed now; an errno
    bool is_held = false;
    uint32_t cache = 0;
    uint64_t device = 0, inode = 0;
};
// Passes the file that a call changes which is not served, while this lives: no chunk of it is
// granted beside the call, lest its old bytes should be written over the new ones.
class Passed {
public:
    explicit Passed(int fd) {  // -1: nothing is changed
        if (internal::writing_back && fd >= 0) [[unlikely]]
            internal::hold(fd, &file_);
    }
    // `path` may be null.
    explicit Passed(const char* path, int folder = -100) {  // AT_FDCWD
        if (internal::writing_back && path != nullptr) [[unlikely]]
            internal::hold_path(path, folder, &file_);
    }
    ~Passed() {
        if (file_.is_held) [[unlikely]]
            internal::release(file_);
    }
    Passed(const Passed&) = delete;
    Passed& operator=(const Passed&) = delete;
    // Returns whether the call must not be made, and sets errno then.
    [[nodiscard]] bool refuses() const {
        if (file_.error != 0) errno = file_.error;
        return file_.error != 0;
    }

private:
    HeldFile file_;
};
// Makes a regular file empty that was just opened to write; `was_there`: before that. Returns false
// with errno if it cannot. Requires write-back.
inline bool truncate_opened(int fd, bool was_there) {
    return internal::truncate_opened(fd, was_there);
}
// The same for a file that stdio has opened to write, and that is passed for good. libc has made it
// empty, but it was perhaps not the file that was passed then.
inline void truncate_passed(int fd) {
    if (internal::writing_back) internal::truncate_passed(fd);
}
// As Passed for a file that is mapped. Without write-back only a mount serves a file that a program
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
    if (internal::writing_back && internal::has_written.exchange(false)) internal::flush_all();
}
// Returns the errno that close(2) of a written file must tell; 0: none.
inline int close_error(int fd) { return internal::writing_back ? internal::close_error(fd) : 0; }
// Sets size and times that stat(2) tells to those that readers see.
template <class Stat>
int corrected(int result, Stat* status) {
    if (internal::writing_back && result == 0 && S_ISREG(status->st_mode))
        internal::correct(status->st_dev, status->st_ino, &status->st_size, &status->st_mtim,
                          &status->st_ctim);
    return result;
}

}  // namespace penstock::preload
