// Wrappers of the calls that mask or catch SIGSYS, which the watching of raw calls needs, and of
// those that make threads and processes past the wrappers (raw_calls.h). Programs see what they
// would see alone, but for SIGSYS in a mask that they have set.
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#include "cached_files.h"
#include "cached_writes.h"
#include "checked_copy.h"
#include "descriptors.h"
#include "device_memory.h"
#include "raw_calls.h"
#include "start.h"
#include "wrap.h"

namespace penstock::preload {

WRAP(int, sigaction, (int signal, const struct sigaction* action, struct sigaction* before)) {
    const Next* libc = next();
    if (sight.load(std::memory_order_relaxed) != Sight::kAll)
        return libc->sigaction(signal, action, before);
    if (signal == SIGSYS) {
        if (before != nullptr) *before = {};  // as it was
        if (action == nullptr) return 0;
        lose_sight();
        return libc->sigaction(signal, action, nullptr);
    }
    if (action == nullptr || sigismember(&action->sa_mask, SIGSYS) != 1)
        return libc->sigaction(signal, action, before);
    struct sigaction changed = *action;
    sigdelset(&changed.sa_mask, SIGSYS);
    return libc->sigaction(signal, &changed, before);
}

WRAP(sighandler_t, signal, (int signal, sighandler_t handler)) {
    const Next* libc = next();
    const bool was_ours = signal == SIGSYS && sight.load() == Sight::kAll;
    if (was_ours) lose_sight();
    const sighandler_t before = libc->signal(signal, handler);
    return was_ours && before != SIG_ERR ? SIG_DFL : before;
}

namespace {

constexpr size_t kKernelMask = 8;  // bytes of a mask that the kernel reads

// Returns a mask without SIGSYS where calls are watched: a call that cannot be told while the
// signal is blocked would end the program. `room` is for the copy.
const sigset_t* without_sigsys(const sigset_t* mask, sigset_t* room) {
    const auto* from = reinterpret_cast<const char*>(mask);
    if (mask == nullptr || sight.load(std::memory_order_relaxed) != Sight::kAll) return mask;
    sigemptyset(room);
    if (!copy_checked(reinterpret_cast<char*>(room), from, kKernelMask, from)) return mask;
    sigdelset(room, SIGSYS);
    return room;
}

// The same for a mask of the signals up to 32.
int without_sigsys(int mask) {
    return sight.load(std::memory_order_relaxed) == Sight::kAll ? mask & ~(1 << (SIGSYS - 1))
                                                                : mask;
}

}  // namespace

WRAP(sighandler_t, sigset, (int signal, sighandler_t handler)) {
    if (signal == SIGSYS) lose_sight();
    return next()->sigset(signal, handler);
}
WRAP(int, sighold, (int signal)) {
    if (signal == SIGSYS && sight.load() == Sight::kAll) return 0;
    return next()->sighold(signal);
}
WRAP(int, sigblock, (int mask)) { return next()->sigblock(without_sigsys(mask)); }
WRAP(int, sigsetmask, (int mask)) { return next()->sigsetmask(without_sigsys(mask)); }

#define MASKED(name, parameters, arguments, mask) \
    WRAP(int, name, parameters) {                 \
        const Next* libc = next();                \
        sigset_t room;                            \
        mask = without_sigsys(mask, &room);       \
        return libc->name arguments;              \
    }
MASKED(pthread_sigmask, (int how, const sigset_t* mask, sigset_t* before), (how, mask, before),
       mask)
MASKED(sigprocmask, (int how, const sigset_t* mask, sigset_t* before), (how, mask, before), mask)
MASKED(sigsuspend, (const sigset_t* mask), (mask), mask)
MASKED(ppoll, (pollfd * all, nfds_t count, const timespec* limit, const sigset_t* mask),
       (all, count, limit, mask), mask)
MASKED(__ppoll_chk,
       (pollfd * all, nfds_t count, const timespec* limit, const sigset_t* mask, size_t room_size),
       (all, count, limit, mask, room_size), mask)
MASKED(pselect,
       (int count, fd_set* reads, fd_set* writes, fd_set* others, const timespec* limit,
        const sigset_t* mask),
       (count, reads, writes, others, limit, mask), mask)
MASKED(epoll_pwait, (int fd, epoll_event* events, int count, int limit, const sigset_t* mask),
       (fd, events, count, limit, mask), mask)
MASKED(epoll_pwait2,
       (int fd, epoll_event* events, int count, const timespec* limit, const sigset_t* mask),
       (fd, events, count, limit, mask), mask)

// Wraps a call after which calls may go unseen, if `condition` holds.
#define BEYOND(result, name, parameters, arguments, condition) \
    WRAP(result, name, parameters) {                           \
        const Next* libc = next();                             \
        if (condition) lose_sight();                           \
        return libc->name arguments;                           \
    }
BEYOND(int, prctl, (int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d),
       (option, a, b, c, d), option == PR_SET_SECCOMP || option == PR_SET_SYSCALL_USER_DISPATCH)
BEYOND(int, unshare, (int flags), (flags), (flags & CLONE_FILES) != 0)
// Its function is called by a thread that libc makes.
BEYOND(int, timer_create, (clockid_t clock, sigevent* event, timer_t* timer), (clock, event, timer),
       event != nullptr && event->sigev_notify == SIGEV_THREAD)
BEYOND(int, thrd_create, (thrd_t * thread, thrd_start_t function, void* argument),
       (thread, function, argument), true)

namespace {

struct CloneStart {
    int (*function)(void*);
    void* argument;
};

int run_clone(void* made) {
    const CloneStart start = *static_cast<CloneStart*>(made);
    begin_child();
    return start.function(start.argument);
}

}  // namespace

WRAP(int, clone,
     (int (*function)(void*), void* stack, int flags, void* argument, pid_t* parent, void* tls,
      pid_t* child)) {
    const Next* libc = next();
    give_all_positions();
    flush_before_program();
    if ((flags & CLONE_FILES) != 0) lose_sight();
    if ((flags & CLONE_VM) != 0)
        return libc->clone(function, stack, flags, argument, parent, tls, child);
    CloneStart start{function, argument};  // the child has a copy
    return libc->clone(run_clone, stack, flags, &start, parent, tls, child);
}

// It gives the standard streams another meaning, by calls within libc.
WRAP(int, daemon, (int stays, int keeps)) {
    const Next* libc = next();
    give_all_positions();
    flush_before_program();
    const int result = libc->daemon(stays, keeps);
    if (result == 0 && keeps == 0) forget_range(0, 2);
    return result;
}

// So does this one, and it closes `fd`.
WRAP(int, login_tty, (int fd)) {
    const Next* libc = next();
    if (libc->login_tty == nullptr) return errno = ENOSYS, -1;  // before glibc 2.34 not in libc
    give_all_positions();
    release_device_files(0, 2);
    const int result = libc->login_tty(fd);
    if (result != 0) return result;
    forget_range(0, 2);
    forget(fd);
    return result;
}

// Its child does the same.
WRAP(int, forkpty, (int* fd, char* name, const termios* state, const winsize* size)) {
    const Next* libc = next();
    if (libc->forkpty == nullptr) return errno = ENOSYS, -1;
    give_all_positions();
    flush_before_program();
    const int child = libc->forkpty(fd, name, state, size);
    if (child == 0) forget_range(0, 2);
    if (child > 0) forget(*fd);
    return child;
}

}  // namespace penstock::preload
