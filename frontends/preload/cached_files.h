// Files below one folder whose reads are served from the memory of a file cache, by the table that
// its service shares (abi/chunk_table.h): a hit makes no system call.
//
// A descriptor is served if it may read a regular file below the folder. Its position: while no
// other process can use the open file description, and only calls that are wrapped do, the position
// is kept here (*owned*). Before any other use, the position is given to the kernel. A read moves
// it there by two calls. Look-ups take no lock, so signal handlers may make them. Whatever goes
// wrong here, the kernel's own call answers instead.
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include <atomic>

namespace penstock::preload {

// The result of a read that is not served here: the kernel's call must be made.
inline constexpr ssize_t kNotCached = -2;

namespace internal {
inline std::atomic<bool> caching{false};
inline std::atomic<int> alone{0};  // descriptors whose description only this process has
ssize_t read_cached(int fd, void* to, size_t size, off_t offset);
void give_all_positions();
void give_up_position(int fd, bool for_good);
bool begin_move(int fd);
void end_move(int fd);
}  // namespace internal

// Begins to serve files as PENSTOCK_CACHE says: SOCKET:FOLDER. Call it once, at start.
void begin_caching(const char* setting);

// Reads at `offset`; -1: at the position. Returns kNotCached if the kernel must be asked. Leaves
// errno. Cost without a cache: a load.
inline ssize_t read_cached(int fd, void* to, size_t size, off_t offset) {
    if (!internal::caching.load(std::memory_order_relaxed)) [[likely]]
        return kNotCached;
    return internal::read_cached(fd, to, size, offset);
}
// A call has opened `fd`: nobody else has its description, but for stdio if it was fopen().
void cached_opened(int fd, bool by_stdio = false);
// Returns whether stdio's reads by a descriptor may be served.
bool may_serve_stream(int fd);
// libc reads by a descriptor of its own accord from now on.
void leave_to_stdio(int fd);
// Returns whether the folder that is served begins with `start`.
bool is_cached_folder(const char* start);
// Returns whether a descriptor is of something below the folder that is served.
bool is_cached_file(int fd);
// A descriptor gets another meaning.
void forget_cached(int fd);
// `to` is a copy of a descriptor: it knows of the same errors.
void copy_told(int from, int to);
// As forget_cached() in a child of vfork, which has its parent's memory: the parent asks for the
// file again.
void distrust_cached(int fd);
// Gives the position of a descriptor to the kernel, for a call that looks at it. If it is
// `for_good`, others may use the description from now on.
inline void give_position(int fd, bool for_good = false) {
    if (internal::caching.load(std::memory_order_relaxed)) [[unlikely]]
        internal::give_up_position(fd, for_good);
}
// The kernel has the position of a descriptor while this lives, and moves it by a call: no other
// thread reads at it meanwhile as it was before.
class KernelMoves {
public:
    explicit KernelMoves(int fd)  // -1: nothing is moved
        : fd_(fd >= 0 && internal::caching.load(std::memory_order_relaxed) &&
                      internal::begin_move(fd)
                  ? fd
                  : -1) {}
    ~KernelMoves() {
        if (fd_ >= 0) internal::end_move(fd_);
    }
    KernelMoves(const KernelMoves&) = delete;
    KernelMoves& operator=(const KernelMoves&) = delete;

private:
    const int fd_;
};
// Gives all positions to the kernel for good: another process gets the descriptors.
inline void give_all_positions() {
    if (internal::alone.load(std::memory_order_relaxed) > 0) [[unlikely]]
        internal::give_all_positions();
}
// As give_all_positions(), if the caller is a child of vfork: it may change its descriptors now.
void give_positions_in_child();
// Moves the position of a descriptor as lseek(2) does. Returns kNotCached if the kernel has it.
off_t seek_cached(int fd, off_t offset, int whence);
// Ends what begin_caching() began, for good. The program is about to become another user, which
// must not get cached bytes of files that it may not read.
void leave_cache();
// The flags of a descriptor change: how it is served is asked again.
void change_flags(int fd);
// Returns the position of a descriptor; -1: the kernel has it. Leaves errno.
off_t owned_position(int fd);

}  // namespace penstock::preload
