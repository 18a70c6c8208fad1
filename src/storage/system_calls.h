// The system calls on files that Penstock makes. No other code of src/ makes one (tests/tidy.py).
//
// Each function is the call of that name in section 2 of the manual, with the same result and
// errno. It enters the kernel without the C library's function of that name, because a program may
// replace that function by one that calls Penstock. pread() and preadv2() are weak symbols, which a
// test replaces. Any thread.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace penstock::storage::system {

// What cachestat(2) is asked and tells, as linux/mman.h of Linux 6.5 defines it.
struct CachestatRange {
    uint64_t offset, size;  // 0 bytes: to the end of the file
};
struct Cachestat {
    uint64_t cached, dirty, writeback, evicted, recently_evicted;  // in pages
};

int open(const char* path, int flags, mode_t mode = 0);
int openat(int folder, const char* path, int flags, mode_t mode = 0);
int close(int descriptor);
int fcntl(int descriptor, int command, int argument);
int fcntl(int descriptor, int command, void* argument);
int ioctl(int descriptor, unsigned long request, void* argument);
int flock(int descriptor, int operation);

ssize_t read(int descriptor, void* to, size_t size);
ssize_t write(int descriptor, const void* from, size_t size);
ssize_t pread(int descriptor, void* to, size_t size, off_t offset);
ssize_t pwrite(int descriptor, const void* from, size_t size, off_t offset);
// With `flags` 0 these are preadv(2) and pwritev(2). pwritev2() also takes the offset -1, which
// stands for the descriptor's position.
ssize_t preadv2(int descriptor, const iovec* pieces, int count, off_t offset, int flags);
ssize_t pwritev2(int descriptor, const iovec* pieces, int count, off_t offset, int flags);
off_t lseek(int descriptor, off_t offset, int from);

int fsync(int descriptor);
int fdatasync(int descriptor);
int ftruncate(int descriptor, off_t size);
int sync_file_range(int descriptor, off_t offset, off_t size, unsigned flags);
int fallocate(int descriptor, int mode, off_t offset, off_t size);
int fadvise(int descriptor, off_t offset, off_t size, int advice);

int stat(const char* path, struct stat* out);
int fstat(int descriptor, struct stat* out);
ssize_t fgetxattr(int descriptor, const char* name, void* value, size_t size);
int utimensat(int folder, const char* path, const timespec times[2], int flags);
int statx(int folder, const char* path, int flags, unsigned mask, struct statx* out);
int statfs(const char* path, struct statfs* out);
int fstatfs(int descriptor, struct statfs* out);

int mkdir(const char* path, mode_t mode);
// Appends what a folder has, but for itself and its parent. Returns 0, or -1 with the errno of
// getdents64(2).
struct FolderEntry {
    std::string name;
    uint64_t inode = 0;
    unsigned char type = 0;  // as readdir(3) tells it: DT_DIR, DT_UNKNOWN ...
};
int list_folder(int descriptor, std::vector<FolderEntry>* out);
int rename(const char* from, const char* to);
int renameat(int from_folder, const char* from, int to_folder, const char* to);
int unlink(const char* path);
int unlinkat(int folder, const char* path, int flags);
ssize_t readlink(const char* path, char* to, size_t size);

void* mmap(void* address, size_t size, int protection, int flags, int descriptor, off_t offset);
int munmap(void* address, size_t size);
int mincore(void* address, size_t size, unsigned char* pages);
int cachestat(int descriptor, const CachestatRange* range, Cachestat* out);

// Fills up to 256 bytes with what no program can foresee. Returns false with the errno of
// getrandom(2).
bool random(void* to, size_t size);

// Makes a file of memory without a name. Flags: those of memfd_create(2).
int memfd_create(const char* name, unsigned flags);

// Makes a file for this user that did not exist, open for reading and writing. Replaces the X at
// the end of `name` by random characters. Returns the descriptor, or -1 with the errno of open(2).
int make_unique_file(std::string* name);

// Closes a descriptor, and so releases its lock, unless it is released. -1: holds none.
class ScopedDescriptor {
public:
    explicit ScopedDescriptor(int descriptor) : descriptor_(descriptor) {}
    ~ScopedDescriptor() {
        if (descriptor_ >= 0) close(descriptor_);
    }
    ScopedDescriptor(const ScopedDescriptor&) = delete;
    ScopedDescriptor& operator=(const ScopedDescriptor&) = delete;

    [[nodiscard]] int get() const { return descriptor_; }
    int release() { return std::exchange(descriptor_, -1); }

private:
    int descriptor_;
};

}  // namespace penstock::storage::system
