// The functions that the wrappers call: those of the next library that has them. It is libc or
// another preloaded library.
//
// They are resolved when this library starts, or earlier if a constructor of another library calls
// a wrapper first, or an allocator does that initializes itself. So this allocates nothing and
// takes no lock (symbols.h), and a thread that is interrupted by a signal may begin again.
#pragma once

#include <aio.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <nl_types.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fsuid.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <threads.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <utime.h>
#include <utmp.h>
#include <wchar.h>

#include <atomic>
#include <type_traits>

namespace penstock::preload {

struct Next {
#define CALL(class, result, name, parameters, arguments) result(*name) parameters;
#include "calls.def"
#undef CALL
};

namespace internal {
extern Next functions;
extern std::atomic<bool> resolved;
const Next* resolve_all();
}  // namespace internal

// Returns the functions, and resolves them first if necessary. Leaves errno as it is. Cost: a load.
inline const Next* next() {
    if (internal::resolved.load(std::memory_order_acquire)) [[likely]]
        return &internal::functions;
    return internal::resolve_all();
}

// System calls of this library's own. They are made by libc's syscall(3), past its wrapper here,
// and set errno as that does.
namespace kernel {
long call_words(long number, long a, long b, long c, long d, long e, long f);
template <class T>
long word(T value) {
    if constexpr (std::is_pointer_v<T>) {
        return reinterpret_cast<long>(value);
    } else {
        return static_cast<long>(value);
    }
}
inline long word(decltype(nullptr)) { return 0; }
template <class... Arguments>
long call(long number, Arguments... arguments) {
    constexpr size_t kWords = 6;
    const long words[kWords] = {word(arguments)...};
    return call_words(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
ssize_t read(int fd, void* to, size_t size);
ssize_t write(int fd, const void* from, size_t size);
ssize_t pread(int fd, void* to, size_t size, off_t offset);
int openat(int folder, const char* path, int flags, mode_t mode);
int close(int fd);
int fstat(int fd, struct stat* status);
int fcntl(int fd, int command, void* argument);
void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset);
int munmap(void* begin, size_t size);
}  // namespace kernel

}  // namespace penstock::preload
