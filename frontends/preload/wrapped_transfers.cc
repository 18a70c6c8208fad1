// Wrappers of the calls that move bytes. They record, observe and serve them.
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "cached_file.h"
#include "cached_files.h"
#include "cached_writes.h"
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

constexpr size_t kCopyMin = 64 << 10;  // shorter calls of sendfile are the kernel's
constexpr size_t kCopyPart = 256 << 10;

// Does what sendfile(2) does, with bytes from a file cache. Returns kNotCached if the kernel must
// be asked.
ssize_t send_cached(int out, int in, off_t* theirs, size_t size) {
    if (!internal::caching.load(std::memory_order_relaxed)) [[likely]]
        return kNotCached;
    const int flags = kernel::fcntl(out, F_GETFL, nullptr);
    off_t offset = -1;
    auto* at = reinterpret_cast<char*>(theirs);
    const bool known = at == nullptr ||
                       (copy_checked(reinterpret_cast<char*>(&offset), at, sizeof offset, at) &&
                        offset >= 0);
    // The kernel refuses to append.
    if (size < kCopyMin || flags < 0 || (flags & O_APPEND) != 0 || !known) return kNotCached;
    const size_t room = size < kCopyPart ? size : kCopyPart;
    void* part = kernel::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                              -1, 0);
    if (part == MAP_FAILED) return kNotCached;
    ssize_t result = kNotCached;
    for (size_t done = 0; done < size;) {
        const size_t wanted = size - done < room ? size - done : room;
        const ssize_t got = read_cached(in, part, wanted, offset);
        if (got <= 0) break;
        const ssize_t sent = kernel::write(out, part, static_cast<size_t>(got));
        const ssize_t moved = sent < 0 ? 0 : sent;
        if (offset >= 0) {
            offset += moved;
        } else if (moved < got && seek_cached(in, moved - got, SEEK_CUR) == kNotCached) {
            syscall(SYS_lseek, in, moved - got, SEEK_CUR);
        }
        done += static_cast<size_t>(moved);
        if (done > 0 || sent < 0) result = done > 0 ? static_cast<ssize_t>(done) : -1;
        if (moved < got) break;
    }
    const int error = errno;
    kernel::munmap(part, room);
    forget_buffers();
    errno = error;
    if (result > 0 && theirs != nullptr) *theirs = offset;
    return result;
}

template <class Call>
ssize_t sent(int out, int in, off_t* offset, size_t size, Call call) {
    const ssize_t cached = send_cached(out, in, offset, size);
    if (cached != kNotCached) return cached;
    if (offset == nullptr) give_position(in);
    return call();
}

ssize_t both_sides(int in, const off_t* in_offset, int out, const off_t* out_offset,
                   ssize_t moved) {
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

constexpr int kPiecesMax = 16;  // with more the kernel is asked

// Reads several pieces from a file cache. At the position it takes one piece only: for more, other
// threads could read between them. Returns kNotCached if the kernel must be asked.
ssize_t read_cached_pieces(int fd, const iovec* theirs, int count, off_t offset) {
    if (!internal::caching.load(std::memory_order_relaxed)) [[likely]]
        return kNotCached;
    iovec pieces[kPiecesMax];
    const auto* from = reinterpret_cast<const char*>(theirs);
    if (count < 1 || count > (offset < 0 ? 1 : kPiecesMax) ||
        !copy_checked(reinterpret_cast<char*>(pieces), from,
                      static_cast<size_t>(count) * sizeof(iovec), from))
        return kNotCached;
    ssize_t done = 0;
    for (int i = 0; i < count; ++i) {
        const size_t size = pieces[i].iov_len;
        if (size == 0) continue;
        const ssize_t got = read_cached(fd, pieces[i].iov_base, size,
                                        offset < 0 ? -1 : offset + done);
        if (got > 0) done += got;
        if (got != static_cast<ssize_t>(size)) return done > 0 ? done : got;
    }
    return done > 0 ? done : kNotCached;
}

// The same for several pieces. A call with flags is the kernel's alone.
template <class Call>
ssize_t moved_pieces(int fd, const iovec* pieces, int count, off_t offset, bool write, Call call,
                     int flags = 0) {
    if (write) {
        pass_cached(fd);
    } else {
        const ssize_t cached = flags == 0 ? read_cached_pieces(fd, pieces, count, offset)
                                          : kNotCached;
        if (cached != kNotCached) return cached;
        flush_cached(fd);
    }
    if (offset < 0) give_position(fd);
    const ssize_t done = call();
    if (done < 0 && errno == EFAULT && (flags & ~RWF_HIPRI) == 0) [[unlikely]]
        return move_pieces(fd, pieces, count, offset, write);
    return done;
}

}  // namespace

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
        both_sides(in, offset, out, nullptr, sent(out, in, offset, size, [=] {
                       return libc->sendfile(out, in, offset, size);
                   }))))
SERVED(sendfile64, (int out, int in, off_t* offset, size_t size),
       (take_position(in, offset, out),
        both_sides(in, offset, out, nullptr, sent(out, in, offset, size, [=] {
                       return libc->sendfile64(out, in, offset, size);
                   }))))
SERVED(copy_file_range,
       (int in, off_t* in_offset, int out, off_t* out_offset, size_t size, unsigned flags),
       (take_position(in, in_offset, out),
        both_sides(in, in_offset, out, out_offset,
                   libc->copy_file_range(in, in_offset, out, out_offset, size, flags))))
SERVED(splice, (int in, off_t* in_offset, int out, off_t* out_offset, size_t size, unsigned flags),
       (take_position(in, in_offset, out),
        both_sides(in, in_offset, out, out_offset,
                   libc->splice(in, in_offset, out, out_offset, size, flags))))

}  // namespace penstock::preload
