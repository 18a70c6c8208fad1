#include "next.h"

#include <sys/syscall.h>

#include <atomic>

#include "start.h"
#include "symbols.h"

namespace penstock::preload {

namespace internal {
Next functions;
std::atomic<bool> resolved{false};
}  // namespace internal

const Next* internal::resolve_all() {
    static constexpr Wanted kWanted[] = {
#define CALL(class, result, name, parameters, arguments) {#name, gnu_hash(#name), &functions.name},
#include "calls.def"
#undef CALL
    };
    find_next(kWanted, sizeof kWanted / sizeof *kWanted);
    resolved.store(true, std::memory_order_release);  // pairs with the load in next()
    begin();
    return &functions;
}

namespace kernel {

long call_words(long number, long a, long b, long c, long d, long e, long f) {
    return next()->syscall(number, a, b, c, d, e, f);
}

ssize_t read(int fd, void* to, size_t size) { return call(SYS_read, fd, to, size); }
ssize_t write(int fd, const void* from, size_t size) { return call(SYS_write, fd, from, size); }
ssize_t pread(int fd, void* to, size_t size, off_t offset) {
    return call(SYS_pread64, fd, to, size, offset);
}
int openat(int folder, const char* path, int flags, mode_t mode) {
    return static_cast<int>(call(SYS_openat, folder, path, flags, mode));
}
int close(int fd) { return static_cast<int>(call(SYS_close, fd)); }
int fstat(int fd, struct stat* status) { return static_cast<int>(call(SYS_fstat, fd, status)); }
int fcntl(int fd, int command, void* argument) {
    return static_cast<int>(call(SYS_fcntl, fd, command, argument));
}
void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) {
    return reinterpret_cast<void*>(call(SYS_mmap, at, size, protection, flags, fd, offset));
}
int munmap(void* begin, size_t size) { return static_cast<int>(call(SYS_munmap, begin, size)); }

}  // namespace kernel
}  // namespace penstock::preload
