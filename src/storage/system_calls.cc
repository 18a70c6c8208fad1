// Calls that arm64 lacks, such as open and stat, are made as openat and newfstatat.
#include "storage/system_calls.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <type_traits>

// A sanitizer checks the memory and the descriptors of the C library's calls, and sees nothing of
// other calls. A build with one makes the calls that move bytes through the library.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PENSTOCK_CALL(library, ...) library
#else
#define PENSTOCK_CALL(library, ...) call(__VA_ARGS__)
#endif

namespace penstock::storage::system {
namespace {

// One register holds an offset, and `struct stat` is the kernel's.
static_assert(sizeof(long) == 8 && sizeof(off_t) == 8, "a 64-bit system");

template <class T>
long word(T value) {
    if constexpr (std::is_pointer_v<T>) {
        return reinterpret_cast<long>(value);
    } else {
        return static_cast<long>(value);
    }
}

// Returns the result of the call, or -1 with its errno. Fills all 64 bits of each argument.
template <class... Arguments>
long call(long number, Arguments... arguments) {
    return syscall(number, word(arguments)...);
}

template <class... Arguments>
int short_call(long number, Arguments... arguments) {
    return static_cast<int>(call(number, arguments...));
}

}  // namespace

int open(const char* path, int flags, mode_t mode) {
    return static_cast<int>(
        PENSTOCK_CALL(::open(path, flags, mode), SYS_openat, AT_FDCWD, path, flags, mode));
}

int openat(int folder, const char* path, int flags, mode_t mode) {
    return static_cast<int>(
        PENSTOCK_CALL(::openat(folder, path, flags, mode), SYS_openat, folder, path, flags, mode));
}

int close(int descriptor) {
    return static_cast<int>(PENSTOCK_CALL(::close(descriptor), SYS_close, descriptor));
}

int fcntl(int descriptor, int command, int argument) {
    return short_call(SYS_fcntl, descriptor, command, argument);
}

int fcntl(int descriptor, int command, void* argument) {
    return short_call(SYS_fcntl, descriptor, command, argument);
}

int ioctl(int descriptor, unsigned long request, void* argument) {
    return short_call(SYS_ioctl, descriptor, request, argument);
}

int flock(int descriptor, int operation) { return short_call(SYS_flock, descriptor, operation); }

ssize_t read(int descriptor, void* to, size_t size) {
    return PENSTOCK_CALL(::read(descriptor, to, size), SYS_read, descriptor, to, size);
}

ssize_t write(int descriptor, const void* from, size_t size) {
    return PENSTOCK_CALL(::write(descriptor, from, size), SYS_write, descriptor, from, size);
}

[[gnu::weak]] ssize_t pread(int descriptor, void* to, size_t size, off_t offset) {
    return PENSTOCK_CALL(::pread(descriptor, to, size, offset), SYS_pread64, descriptor, to, size,
                         offset);
}

ssize_t pwrite(int descriptor, const void* from, size_t size, off_t offset) {
    return PENSTOCK_CALL(::pwrite(descriptor, from, size, offset), SYS_pwrite64, descriptor, from,
                         size, offset);
}

// The 0 after an offset is its upper half on a 32-bit system.
[[gnu::weak]] ssize_t preadv2(int descriptor, const iovec* pieces, int count, off_t offset,
                              int flags) {
    if (flags == 0)
        return PENSTOCK_CALL(::preadv(descriptor, pieces, count, offset), SYS_preadv, descriptor,
                             pieces, count, offset, 0);
    return PENSTOCK_CALL(::preadv2(descriptor, pieces, count, offset, flags), SYS_preadv2,
                         descriptor, pieces, count, offset, 0, flags);
}

ssize_t pwritev2(int descriptor, const iovec* pieces, int count, off_t offset, int flags) {
    if (flags == 0 && offset == -1)
        return PENSTOCK_CALL(::writev(descriptor, pieces, count), SYS_writev, descriptor, pieces,
                             count);
    if (flags == 0)
        return PENSTOCK_CALL(::pwritev(descriptor, pieces, count, offset), SYS_pwritev, descriptor,
                             pieces, count, offset, 0);
    return PENSTOCK_CALL(::pwritev2(descriptor, pieces, count, offset, flags), SYS_pwritev2,
                         descriptor, pieces, count, offset, 0, flags);
}

off_t lseek(int descriptor, off_t offset, int from) {
    return call(SYS_lseek, descriptor, offset, from);
}

int fsync(int descriptor) { return short_call(SYS_fsync, descriptor); }

int fdatasync(int descriptor) { return short_call(SYS_fdatasync, descriptor); }

int ftruncate(int descriptor, off_t size) { return short_call(SYS_ftruncate, descriptor, size); }

int fallocate(int descriptor, int mode, off_t offset, off_t size) {
    return short_call(SYS_fallocate, descriptor, mode, offset, size);
}

int sync_file_range(int descriptor, off_t offset, off_t size, unsigned flags) {
    return short_call(SYS_sync_file_range, descriptor, offset, size, flags);
}
int fadvise(int descriptor, off_t offset, off_t size, int advice) {
    return short_call(SYS_fadvise64, descriptor, offset, size, advice);
}

int memfd_create(const char* name, unsigned flags) {
    return short_call(SYS_memfd_create, name, flags);
}

int stat(const char* path, struct stat* out) {
    return short_call(SYS_newfstatat, AT_FDCWD, path, out, 0);
}

int fstat(int descriptor, struct stat* out) { return short_call(SYS_fstat, descriptor, out); }

ssize_t fgetxattr(int descriptor, const char* name, void* value, size_t size) {
    return call(SYS_fgetxattr, descriptor, name, value, size);
}

int utimensat(int folder, const char* path, const timespec times[2], int flags) {
    return short_call(SYS_utimensat, folder, path, times, flags);
}

int statx(int folder, const char* path, int flags, unsigned mask, struct statx* out) {
    return short_call(SYS_statx, folder, path, flags, mask, out);
}

int statfs(const char* path, struct statfs* out) { return short_call(SYS_statfs, path, out); }

int fstatfs(int descriptor, struct statfs* out) { return short_call(SYS_fstatfs, descriptor, out); }

int list_folder(int descriptor, std::vector<FolderEntry>* out) {
    alignas(8) char buffer[32 << 10];
    for (;;) {
        const long size = call(SYS_getdents64, descriptor, &buffer[0], sizeof buffer);
        if (size <= 0) return static_cast<int>(size);
        // Of the kernel: inode, next offset (8 bytes each), size of the entry (2), type (1), name.
        for (long at = 0; at < size;) {
            uint64_t inode = 0;
            uint16_t length = 0;
            std::memcpy(&inode, buffer + at, sizeof inode);
            std::memcpy(&length, buffer + at + 16, sizeof length);
            const std::string name(buffer + at + 19);
            if (name != "." && name != "..")
                out->push_back({name, inode, static_cast<unsigned char>(buffer[at + 18])});
            at += length;
        }
    }
}

int mkdir(const char* path, mode_t mode) { return short_call(SYS_mkdirat, AT_FDCWD, path, mode); }

int rename(const char* from, const char* to) {
    return short_call(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) {
    return short_call(SYS_renameat2, from_folder, from, to_folder, to, 0);
}

int unlink(const char* path) { return short_call(SYS_unlinkat, AT_FDCWD, path, 0); }

int unlinkat(int folder, const char* path, int flags) {
    return short_call(SYS_unlinkat, folder, path, flags);
}

ssize_t readlink(const char* path, char* to, size_t size) {
    return call(SYS_readlinkat, AT_FDCWD, path, to, size);
}

void* mmap(void* address, size_t size, int protection, int flags, int descriptor, off_t offset) {
    return reinterpret_cast<void*>(
        call(SYS_mmap, address, size, protection, flags, descriptor, offset));
}

int munmap(void* address, size_t size) { return short_call(SYS_munmap, address, size); }

int mincore(void* address, size_t size, unsigned char* pages) {
    return short_call(SYS_mincore, address, size, pages);
}

int cachestat(int descriptor, const CachestatRange* range, Cachestat* out) {
    constexpr long kNumber = 451;  // on every architecture; headers before Linux 6.5 lack it
    return short_call(kNumber, descriptor, range, out, 0);
}

bool random(void* to, size_t size) {
    return getrandom(to, size, 0) == static_cast<ssize_t>(size);  // up to 256 bytes come at once
}

int make_unique_file(std::string* name) {
    constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyz012345";
    constexpr int kTriesMax = 100;
    const size_t stem = name->find_last_not_of('X') + 1;
    for (int i = 0; i < kTriesMax; ++i) {
        for (size_t at = stem; at < name->size(); ++at) {
            unsigned char letter = 0;
            if (!random(&letter, sizeof letter)) return -1;
            (*name)[at] = kLetters[letter % (sizeof kLetters - 1)];
        }
        const int made = open(name->c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (made >= 0 || errno != EEXIST) return made;
    }
    return -1;
}

}  // namespace penstock::storage::system
