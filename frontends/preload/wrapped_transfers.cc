// Wrappers of the calls that move bytes. They record, observe and serve them.
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "cached_file.h"
#include "cached_files.h"
#include "cached_writes.h"
#include "checked_copy.h"
#include "descriptors.h"
#include "device_memory.h"
#include "observer.h"
#include "trace.h"
#include "wrap.h"

namespace penstock::preload {
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
    return record_at_position(operation, fd, moved);
}

// Records one side of a transfer between descriptors; `offset` points behind it, or is null.
void one_side(char operation, int fd, const off_t* offset, ssize_t moved) {
    if (offset == nullptr) {
        at_position(operation, fd, moved);
    } else if (moved > 0) {
        at_offset(operation, fd, *offset - moved, moved);
    }
}

constexpr size_t kCopyMin = 64 << 10;  // shorter calls of sendfile are the kernel's
constexpr size_t kCopyPart = 256 << 10;

// Returns whether sendfile(2) may take from a file cache what it copies to another file. The kernel
// moves as much to a pipe or a socket as it has room for, which no write does.
bool may_send_cached(int out, int in, size_t size) {
    CachedFile* file = internal::caching.load(std::memory_order_relaxed) ? file_at(in) : nullptr;
    if (file == nullptr || size < kCopyMin || size > kMoveMax || is_child_of_vfork()) return false;
    const int error = errno;
    struct stat from, to;
    const int flags = kernel::fcntl(out, F_GETFL, nullptr);
    const bool may = file->state.load() != kIgnored && flags >= 0 &&
                     (flags & O_APPEND) == 0 &&  // which the kernel refuses
                     kernel::fstat(in, &from) == 0 && kernel::fstat(out, &to) == 0 &&
                     S_ISREG(to.st_mode) &&
                     (from.st_dev != to.st_dev || from.st_ino != to.st_ino) && is_served(in, *file);
    errno = error;
    return may;
}

// Copies from a file cache to another file, from `*offset` on, which it moves. Returns the bytes
// copied; -1 with errno if there are none, and kNotCached if the kernel must be asked for them.
ssize_t send_cached(int out, int in, off_t* offset, size_t size) {
    const size_t room = size < kCopyPart ? size : kCopyPart;
    void* part = kernel::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                              -1, 0);
    if (part == MAP_FAILED) return kNotCached;
    ssize_t done = 0, sent = 0;
    while (static_cast<size_t>(done) < size) {
        const size_t left = size - static_cast<size_t>(done);
        const ssize_t got = read_cached(in, part, left < room ? left : room, *offset);
        if (got <= 0) break;
        sent = kernel::write(out, part, static_cast<size_t>(got));
        if (sent > 0) *offset += sent;
        if (sent > 0) done += sent;
        if (sent < got) break;
    }
    const int error = errno;
    kernel::munmap(part, room);
    errno = error;
    if (done > 0) return done;
    return sent < 0 ? -1 : kNotCached;
}

// Does what sendfile(2) does. The kernel copies what the cache does not have.
template <class Call>
ssize_t sent(int out, int in, off_t* theirs, size_t size, Call call) {
    auto* at = reinterpret_cast<char*>(theirs);
    off_t offset = 0;
    auto* ours = reinterpret_cast<char*>(&offset);
    const int error = errno;
    if (!may_send_cached(out, in, size) ||
        (theirs != nullptr && !copy_checked(ours, at, sizeof offset, at)))
        return call(theirs, size);
    if (theirs == nullptr) offset = kernel::call(SYS_lseek, in, 0, SEEK_CUR);
    if (offset < 0) return call(theirs, size);
    const ssize_t cached = send_cached(out, in, &offset, size);
    if (cached == kNotCached) return call(theirs, size);
    if (cached < 0) return cached;
    if (theirs == nullptr) kernel::call(SYS_lseek, in, cached, SEEK_CUR);
    const size_t left = size - static_cast<size_t>(cached);
    if (left > 0) flush_cached(in);
    const ssize_t rest = left == 0 ? 0 : call(theirs == nullptr ? nullptr : &offset, left);
    if (theirs != nullptr && !copy_checked(at, ours, sizeof offset, at)) return errno = EFAULT, -1;
    errno = error;
    return cached + (rest > 0 ? rest : 0);
}

// Moves bytes from one descriptor to another by `call`, at offsets that it moves, or at the
// position where they are null.
template <class Call>
ssize_t between(int in, const off_t* in_offset, int out, const off_t* out_offset, Call call) {
    flush_cached(in);
    const KernelMoves moves_in(in_offset == nullptr ? in : -1);
    const KernelMoves moves_out(out_offset == nullptr ? out : -1);
    const Passed passed(out);
    if (passed.refuses()) return -1;
    const ssize_t moved = call();
    one_side('r', in, in_offset, moved);
    one_side('w', out, out_offset, moved);
    return moved;
}

constexpr off_t kAtPosition = INT64_MIN;

// Moves bytes by libc's `call`, or by the service if the memory is a GPU's.
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
    }
    const KernelMoves moves(offset < 0 ? fd : -1);
    const Passed passed(write ? fd : -1);
    if (passed.refuses()) return -1;
    if (may_be_device_memory(at)) [[unlikely]] {
        const ssize_t done = move_device_memory(fd, at, size, offset, write);
        if (done >= 0 || errno != EFAULT) return done;
    }
    const ssize_t done = call();
    if (done < 0 && errno == EFAULT) [[unlikely]]
        return move_device_memory(fd, at, size, offset, write);
    return done;
}

constexpr int kPiecesMax = 16;  // with more the kernel is asked

// Copies the pieces of a call. Returns false if there are too many, or if the kernel must judge
// them.
bool copy_pieces(const iovec* theirs, int count, iovec* pieces) {
    const auto* from = reinterpret_cast<const char*>(theirs);
    if (count < 1 || count > kPiecesMax ||
        !copy_checked(reinterpret_cast<char*>(pieces), from,
                      static_cast<size_t>(count) * sizeof(iovec), from))
        return false;
    size_t all = 0;
    for (int i = 0; i < count; ++i) {
        intptr_t end = 0;  // below 0: the kernel's own memory
        const auto begin = reinterpret_cast<intptr_t>(pieces[i].iov_base);
        const bool plain = pieces[i].iov_len <= kMoveMax - all &&
                           !__builtin_add_overflow(begin, pieces[i].iov_len, &end) && begin >= 0;
        if (!plain) return false;
        all += pieces[i].iov_len;
    }
    return true;
}

// Reads several pieces from a file cache. At the position (-1) it takes one piece only: for more,
// other threads could read between them. Returns kNotCached if the kernel must be asked.
ssize_t read_cached_pieces(int fd, const iovec* theirs, int count, off_t offset) {
    CachedFile* file = internal::caching.load(std::memory_order_relaxed) ? file_at(fd) : nullptr;
    if (file == nullptr || (offset < 0 && count != 1)) [[likely]]
        return kNotCached;
    iovec pieces[kPiecesMax];
    const int error = errno;
    const bool served = is_served(fd, *file) && copy_pieces(theirs, count, pieces);
    errno = error;
    if (!served) return kNotCached;
    if (offset < 0) return read_cached(fd, pieces[0].iov_base, pieces[0].iov_len, -1);
    ssize_t done = 0;
    bool cached = true;
    for (int i = 0; i < count; ++i) {
        const iovec& piece = pieces[i];
        if (piece.iov_len == 0) continue;
        ssize_t got = cached ? read_cached(fd, piece.iov_base, piece.iov_len, offset + done)
                             : kNotCached;
        if (got == kNotCached && done == 0) return kNotCached;
        if (got == kNotCached) {
            if (cached) flush_cached(fd);
            cached = false;
            got = kernel::pread(fd, piece.iov_base, piece.iov_len, offset + done);
            errno = error;
        }
        if (got > 0) done += got;
        if (got != static_cast<ssize_t>(piece.iov_len)) break;
    }
    return done > 0 ? done : kNotCached;
}

// The same for several pieces. A call with flags is the kernel's alone.
template <class Call>
ssize_t moved_pieces(int fd, const iovec* pieces, int count, off_t offset, bool write, Call call,
                     int flags = 0) {
    if (offset < 0 && offset != kAtPosition) return call();  // an error
    if (offset == kAtPosition) offset = -1;
    if (!write) {
        const ssize_t cached = flags == 0 ? read_cached_pieces(fd, pieces, count, offset)
                                          : kNotCached;
        if (cached != kNotCached) return cached;
        flush_cached(fd);
    }
    const Passed passed(write ? fd : -1);
    if (passed.refuses()) return -1;
    const KernelMoves moves(offset < 0 ? fd : -1);
    const ssize_t done = call();
    if (done < 0 && errno == EFAULT && (flags & ~RWF_HIPRI) == 0) [[unlikely]]
        return move_pieces(fd, pieces, count, offset, write);
    return done;
}

}  // namespace

#define READ(name, parameters, arguments)                                         \
    WRAP(ssize_t, name, parameters) {                                             \
        const Next* libc = next();                                                \
        return at_position('r', fd, moved(fd, to, size, kAtPosition, false, [=] { \
                               return libc->name arguments;                       \
                           }));                                                   \
    }

#define PREAD(name, parameters, arguments)                                         \
    WRAP(ssize_t, name, parameters) {                                              \
        const Next* libc = next();                                                 \
        return at_offset('r', fd, offset, moved(fd, to, size, offset, false, [=] { \
                             return libc->name arguments;                          \
                         }));                                                      \
    }

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
           at_position(operation, fd, moved_pieces(fd, pieces, count, kAtPosition, write, [=] {  \
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
                   fd, pieces, count, offset == -1 ? kAtPosition : offset, write,                \
                   [=] { return libc->p##call##v2(fd, pieces, count, offset, flags); }, flags))) \
    SERVED(                                                                                      \
        p##call##v64v2, (int fd, const iovec* pieces, int count, off_t offset, int flags),       \
        at_offset_or_position(                                                                   \
            operation, fd, offset,                                                               \
            moved_pieces(                                                                        \
                fd, pieces, count, offset == -1 ? kAtPosition : offset, write,                   \
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
       between(in, offset, out, nullptr, [=] {
           return sent(out, in, offset, size, [=](off_t* from, size_t left) {
               return libc->sendfile(out, in, from, left);
           });
       }))
SERVED(sendfile64, (int out, int in, off_t* offset, size_t size),
       between(in, offset, out, nullptr, [=] {
           return sent(out, in, offset, size, [=](off_t* from, size_t left) {
               return libc->sendfile64(out, in, from, left);
           });
       }))
SERVED(copy_file_range,
       (int in, off_t* in_offset, int out, off_t* out_offset, size_t size, unsigned flags),
       between(in, in_offset, out, out_offset,
               [=] { return libc->copy_file_range(in, in_offset, out, out_offset, size, flags); }))
SERVED(splice, (int in, off_t* in_offset, int out, off_t* out_offset, size_t size, unsigned flags),
       between(in, in_offset, out, out_offset,
               [=] { return libc->splice(in, in_offset, out, out_offset, size, flags); }))

// libc writes the text by inner calls.
WRAP(int, vdprintf, (int fd, const char* format, va_list list)) {
    const Passed passed(fd);
    if (passed.refuses()) return -1;
    const KernelMoves moves(fd);
    return static_cast<int>(at_position('w', fd, next()->vdprintf(fd, format, list)));
}
WRAP(int, __vdprintf_chk, (int fd, int flag, const char* format, va_list list)) {
    const Passed passed(fd);
    if (passed.refuses()) return -1;
    const KernelMoves moves(fd);
    return static_cast<int>(at_position('w', fd, next()->__vdprintf_chk(fd, flag, format, list)));
}
WRAP(int, dprintf, (int fd, const char* format, ...)) {
    va_list list;
    va_start(list, format);
    const int result = wrap_vdprintf(fd, format, list);
    va_end(list);
    return result;
}
WRAP(int, __dprintf_chk, (int fd, int flag, const char* format, ...)) {
    va_list list;
    va_start(list, format);
    const int result = wrap___vdprintf_chk(fd, flag, format, list);
    va_end(list);
    return result;
}

}  // namespace penstock::preload
