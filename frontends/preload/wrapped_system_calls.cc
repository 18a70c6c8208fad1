// The wrapper of syscall(3), which makes a call by the wrapper of libc's function that does the
// same, and the wrappers of what could end the watching of raw calls (raw_calls.h).
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#include <type_traits>

#include "cached_file.h"
#include "cached_files.h"
#include "cached_writes.h"
#include "checked_copy.h"
#include "descriptors.h"
#include "raw_calls.h"
#include "start.h"
#include "wrap.h"
#include "wrapped_users.h"

namespace penstock::preload {
namespace {

struct Range {
    std::atomic<uintptr_t> begin{0}, end{0};
};
constexpr unsigned kExemptMax = 4;
constinit Range exempted[kExemptMax];
std::atomic<unsigned> exempted_count{0};  // may grow beyond the last

// A call that is made by a function of libc. libc's functions are cancellation points, and system
// calls are not. Where an allocator has a function of that name, which makes the call by syscall(3)
// (tcmalloc's mmap) or an instruction, it comes here again with the same words.
class Routed {
public:
    Routed(long number, const long* words) : outer_(innermost) {
        innermost = {this, number, {words[0], words[1], words[2]}, PTHREAD_CANCEL_ENABLE};
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &innermost.cancels);
    }
    ~Routed() {
        pthread_setcancelstate(innermost.cancels, nullptr);
        innermost = outer_;
    }
    Routed(const Routed&) = delete;
    Routed& operator=(const Routed&) = delete;

    static bool is_again(long number, const long* words) {
        if (innermost.frame == nullptr) return false;
        // A frame of which this one is no part was left by longjmp().
        if (static_cast<const void*>(innermost.frame) < __builtin_frame_address(0)) {
            pthread_setcancelstate(innermost.cancels, nullptr);
            innermost = {};
            return false;
        }
        return innermost.number == number &&
               memcmp(innermost.words, words, sizeof innermost.words) == 0;
    }

private:
    struct Call {
        const Routed* frame = nullptr;
        long number = 0;
        long words[3] = {};
        int cancels = PTHREAD_CANCEL_ENABLE;
    };
    static __thread Call innermost __attribute__((tls_model("initial-exec")));
    const Call outer_;
};
__thread Routed::Call Routed::innermost;

// A word of a system call as whatever parameter it is passed for.
struct Word {
    long word;
    template <class T>
    operator T*() const {
        return reinterpret_cast<T*>(word);
    }
    template <class T>
    requires std::is_integral_v<T>
    operator T() const { return static_cast<T>(word); }
};

long answer(int error) {
    if (error == 0) return 0;
    errno = error;
    return -1;
}

bool makes_process(long number) {
#if defined(__x86_64__)
    if (number == SYS_fork) return true;
#endif
    return number == SYS_clone || number == SYS_clone3;
}

// Makes a process or a thread that libc does not know of.
long clone_past_libc(long number, const long* words) {
    const auto flags = number == SYS_clone ? static_cast<unsigned long>(words[0]) : 0ul;
    give_all_positions();
    flush_before_program();
    if (number == SYS_clone3 || (flags & (CLONE_VM | CLONE_FILES)) != 0) lose_sight();
    const long made = kernel::call(number, words[0], words[1], words[2], words[3], words[4]);
    if (made == 0 && number != SYS_clone3 && (flags & CLONE_VM) == 0) begin_child();
    return made;
}

// Changes the mask of the calling thread, but for SIGSYS where calls are watched.
long mask_signals(const long* words) {
    uint64_t mask = 0;
    const auto* theirs = reinterpret_cast<const char*>(words[1]);
    const bool strips = theirs != nullptr && sight.load() == Sight::kAll &&
                        words[3] == sizeof mask &&
                        copy_checked(reinterpret_cast<char*>(&mask), theirs, sizeof mask, theirs);
    mask &= ~(uint64_t{1} << (SIGSYS - 1));
    const long set = strips ? reinterpret_cast<long>(&mask) : words[1];
    return kernel::call(SYS_rt_sigprocmask, words[0], set, words[2], words[3]);
}

// Returns whether a call may have effects that are not seen.
bool is_beyond_sight(long number, const long* words) {
    switch (number) {
        case SYS_io_uring_setup:  // the kernel makes calls for it
        case SYS_io_setup:
        case SYS_seccomp:  // a filter may send SIGSYS
        case SYS_pidfd_getfd:
            return true;
        case SYS_prctl:
            return words[0] == PR_SET_SECCOMP || words[0] == PR_SET_SYSCALL_USER_DISPATCH;
        case SYS_rt_sigaction:
            return words[1] != 0;
        case SYS_unshare:
            return (words[0] & CLONE_FILES) != 0;
    }
    return false;
}

long open_as(int folder, const char* path, const open_how* theirs, size_t size) {
    open_how how{};
    const auto* from = reinterpret_cast<const char*>(theirs);
    const bool known = size >= sizeof how &&
                       copy_checked(reinterpret_cast<char*>(&how), from, sizeof how, from);
    const Passed passed(known && (how.flags & O_TRUNC) != 0 ? path : nullptr, folder);
    if (passed.refuses()) return -1;
    const long fd = kernel::call(SYS_openat2, folder, path, theirs, size);
    if (fd >= 0) {
        forget(static_cast<int>(fd));
        cached_opened(static_cast<int>(fd));
    }
    return fd;
}

// Makes calls that libc's functions make too. Returns false if there is none for it.
bool make_by_libc(long number, Word a, Word b, Word c, Word d, Word e, Word f, long* result) {
#define MAKE(call, made)  \
    case SYS_##call:      \
        *result = (made); \
        return true;
    switch (number) {
        MAKE(read, read(a, b, c))
        MAKE(write, write(a, b, c))
        MAKE(pread64, pread(a, b, c, d))
        MAKE(pwrite64, pwrite(a, b, c, d))
        MAKE(readv, readv(a, b, c))
        MAKE(writev, writev(a, b, c))
        MAKE(preadv, preadv(a, b, c, d))
        MAKE(pwritev, pwritev(a, b, c, d))
        MAKE(preadv2, preadv2(a, b, c, d, f))
        MAKE(pwritev2, pwritev2(a, b, c, d, f))
        MAKE(sendfile, sendfile(a, b, c, d))
        MAKE(copy_file_range, copy_file_range(a, b, c, d, e, f))
        MAKE(splice, splice(a, b, c, d, e, f))
        MAKE(openat, openat(a, b, int{c}, mode_t{d}))
        MAKE(openat2, open_as(a, b, c, d))
        MAKE(close, close(a))
        MAKE(close_range, close_range(a, b, c))
        MAKE(dup, dup(a))
        MAKE(dup3, dup3(a, b, c))
        MAKE(fcntl, fcntl(a, int{b}, static_cast<void*>(c)))
        MAKE(lseek, lseek(a, b, c))
        MAKE(fadvise64, answer(posix_fadvise(a, b, c, d)))
        MAKE(ftruncate, ftruncate(a, b))
        MAKE(truncate, truncate(a, b))
        MAKE(fallocate, fallocate(a, b, c, d))
        MAKE(fsync, fsync(a))
        MAKE(fdatasync, fdatasync(a))
        MAKE(syncfs, syncfs(a))
        MAKE(sync, (sync(), 0))
        MAKE(sync_file_range, sync_file_range(a, b, c, d))
        MAKE(fstat, fstat(a, b))
        MAKE(newfstatat, fstatat(a, b, c, d))
        MAKE(statx, statx(a, b, c, d, e))
        MAKE(utimensat, b.word == 0 ? futimens(a, c) : utimensat(a, b, c, d))
        MAKE(unlinkat, unlinkat(a, b, c))
        MAKE(renameat2, renameat2(a, b, c, d, e))
        MAKE(ioctl, ioctl(a, (unsigned long){b}, static_cast<void*>(c)))
        MAKE(mmap, reinterpret_cast<long>(mmap(a, b, c, d, e, f)))
        MAKE(munmap, munmap(a, b))
        MAKE(sendmsg, sendmsg(a, b, c))
        MAKE(sendmmsg, sendmmsg(a, b, c, d))
        MAKE(execve, execve(a, b, c))
        MAKE(execveat, execveat(a, b, c, d, e))
        MAKE(prlimit64, prlimit(a, static_cast<__rlimit_resource>(b.word), c, d))
        MAKE(mprotect, mprotect(a, b, c))
        MAKE(mremap, reinterpret_cast<long>(mremap(a, b, c, d, static_cast<void*>(e))))
#if defined(__x86_64__)
        MAKE(open, open(a, int{b}, mode_t{c}))
        MAKE(creat, creat(a, b))
        MAKE(dup2, dup2(a, b))
        MAKE(stat, stat(a, b))
        MAKE(lstat, lstat(a, b))
        MAKE(utime, utime(a, b))
        MAKE(utimes, utimes(a, b))
        MAKE(futimesat, futimesat(a, b, c))
        MAKE(unlink, unlink(a))
        MAKE(rename, rename(a, b))
        MAKE(setrlimit, setrlimit(static_cast<__rlimit_resource>(a.word), b))
        MAKE(renameat, renameat(a, b, c, d))
#endif
    }
#undef MAKE
    return false;
}

// Makes calls that change nothing that is kept here. Returns false if a handler cannot make it.
bool make_as_it_is(long number, const long* words, long* result) {
    constexpr long kCalls[] = {
        SYS_futex,
        SYS_sched_yield,
        SYS_getpid,
        SYS_gettid,
        SYS_getppid,
        SYS_getuid,
        SYS_geteuid,
        SYS_getgid,
        SYS_getegid,
        SYS_clock_gettime,
        SYS_clock_getres,
        SYS_clock_nanosleep,
        SYS_nanosleep,
        SYS_gettimeofday,
        SYS_getcpu,
        SYS_getrandom,
        SYS_madvise,
        SYS_brk,
        SYS_membarrier,
        SYS_sched_getaffinity,
        SYS_sched_setaffinity,
        SYS_epoll_create1,
        SYS_epoll_ctl,
        SYS_eventfd2,
        SYS_timerfd_create,
        SYS_timerfd_settime,
        SYS_pipe2,
        SYS_memfd_create,
        SYS_socket,
        SYS_socketpair,
        SYS_bind,
        SYS_listen,
        SYS_accept,
        SYS_accept4,
        SYS_connect,
        SYS_shutdown,
        SYS_getsockname,
        SYS_getpeername,
        SYS_setsockopt,
        SYS_getsockopt,
        SYS_sendto,
        SYS_recvfrom,
        SYS_recvmsg,
        SYS_faccessat,
        SYS_readlinkat,
        SYS_getdents64,
        SYS_getcwd,
        SYS_chdir,
        SYS_fchdir,
        SYS_mkdirat,
        SYS_fchmod,
        SYS_fchmodat,
        SYS_fchown,
        SYS_fchownat,
        SYS_setuid,
        SYS_setreuid,
        SYS_setresuid,
        SYS_setfsuid,
        SYS_umask,
        SYS_uname,
        SYS_sysinfo,
        SYS_getrusage,
        SYS_times,
        SYS_kill,
        SYS_tgkill,
        SYS_inotify_init1,
        SYS_inotify_add_watch,
        SYS_inotify_rm_watch,
        SYS_flock,
        SYS_statfs,
        SYS_fstatfs,
        SYS_mlock,
        SYS_munlock,
        SYS_set_robust_list,
        SYS_exit_group,
#if defined(__x86_64__)
        SYS_poll,
        SYS_select,
        SYS_epoll_wait,
        SYS_pipe,
        SYS_access,
        SYS_readlink,
        SYS_getdents,
        SYS_mkdir,
        SYS_rmdir,
        SYS_time,
        SYS_getrlimit,
        SYS_chmod,
#endif
    };
    for (const long one : kCalls) {
        if (one != number) continue;
        *result = kernel::call(number, words[0], words[1], words[2], words[3], words[4], words[5]);
        return true;
    }
    return false;
}

}  // namespace

void exempt(uintptr_t begin, uintptr_t end) {
    const unsigned at = exempted_count.fetch_add(1);
    if (at >= kExemptMax) return;
    exempted[at].end.store(end);
    exempted[at].begin.store(begin);
}

bool is_exempt(const void* caller) {
    const auto at = reinterpret_cast<uintptr_t>(caller);
    for (const Range& range : exempted)
        if (range.begin.load() != 0 && at >= range.begin.load() && at < range.end.load())
            return true;
    return false;
}

bool make_call(long number, const long* words, long* result) {
    if (Routed::is_again(number, words)) {
        *result = kernel::call(number, words[0], words[1], words[2], words[3], words[4], words[5]);
        return true;
    }
    leave_before(number, words);
    const Routed routed(number, words);
    return make_by_libc(number, {words[0]}, {words[1]}, {words[2]}, {words[3]}, {words[4]},
                        {words[5]}, result) ||
           make_as_it_is(number, words, result);
}

WRAP(long, syscall, (long number, long a, long b, long c, long d, long e, long f)) {
    const Next* libc = next();
    if (is_exempt(__builtin_return_address(0))) return libc->syscall(number, a, b, c, d, e, f);
    const long words[] = {a, b, c, d, e, f};
    long result = 0;
    if (Routed::is_again(number, words)) return libc->syscall(number, a, b, c, d, e, f);
    if (makes_process(number)) return clone_past_libc(number, words);
    if (number == SYS_rt_sigprocmask) return mask_signals(words);
    if (is_beyond_sight(number, words)) lose_sight();
    leave_before(number, words);
    const Routed routed(number, words);
    if (make_by_libc(number, {a}, {b}, {c}, {d}, {e}, {f}, &result)) return result;
    return libc->syscall(number, a, b, c, d, e, f);
}

}  // namespace penstock::preload
