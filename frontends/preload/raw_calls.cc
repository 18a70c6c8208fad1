#include "raw_calls.h"

#include <errno.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <linux/audit.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "cached_files.h"
#include "cached_writes.h"
#include "next.h"
#include "symbols.h"
#include "wrap.h"

namespace penstock::preload {
namespace {

// The kernel's names, of Linux 5.11; older headers lack them.
constexpr int kSetDispatch = 59, kDispatchOn = 1;  // PR_SET_SYSCALL_USER_DISPATCH
constexpr int kDispatched = 2;                     // SYS_USER_DISPATCH
constexpr char kAllow = 0, kBlock = 1;

// Each costs the program 0.9 us, so all together at most 15 ms.
constexpr unsigned kTrapsMax = 1 << 14;

// Read by the kernel at each system call outside libc's code, for all threads that are watched.
volatile char selector = kAllow;
std::atomic<unsigned> traps{0};
uintptr_t libc_begin = 0, libc_end = 0;  // its code

// Finds the code of libc.
int find_libc(dl_phdr_info* object, size_t, void*) {
    const auto inside = reinterpret_cast<uintptr_t>(&gnu_get_libc_version);
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const auto& part = object->dlpi_phdr[i];
        const uintptr_t begin = object->dlpi_addr + part.p_vaddr;
        if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0 || inside < begin ||
            inside >= begin + part.p_memsz)
            continue;
        libc_begin = begin;
        libc_end = begin + part.p_memsz;
        return 1;
    }
    return 0;
}

#if defined(__x86_64__)

constexpr int kInstructionSize = 2;  // bytes of `syscall`

void trapped(int signal, siginfo_t* info, void* context) {
    if (info->si_code != kDispatched) {
        // It is another's, which expects that it ends the program.
        struct sigaction plain {};
        plain.sa_handler = SIG_DFL;
        next()->sigaction(signal, &plain, nullptr);
        kernel::call(SYS_tgkill, getpid(), kernel::call(SYS_gettid), signal);
        return;
    }
    const int error = errno;
    auto& words = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    const long call[] = {words[REG_RDI], words[REG_RSI], words[REG_RDX],
                         words[REG_R10], words[REG_R8],  words[REG_R9]};
    long result = 0;
    bool made = is_exempt(info->si_call_addr);
    if (made) {
        result = kernel::call(info->si_syscall, call[0], call[1], call[2], call[3], call[4],
                              call[5]);
    } else if (info->si_arch == AUDIT_ARCH_X86_64 &&
               traps.fetch_add(1, std::memory_order_relaxed) < kTrapsMax) {
        made = make_call(info->si_syscall, call, &result);
    }
    if (made) {
        words[REG_RAX] = result == -1 ? -errno : result;
    } else {
        lose_sight();
        words[REG_RIP] -= kInstructionSize;  // the program makes the call itself
        words[REG_RAX] = info->si_syscall;
    }
    errno = error;
}

bool catch_calls() {
    struct sigaction before {};
    if (next()->sigaction(SIGSYS, nullptr, &before) != 0 || before.sa_handler != SIG_DFL)
        return false;
    struct sigaction action {};
    action.sa_sigaction = trapped;
    // A call that waits may be interrupted by other signals. Signal stacks are too small for it.
    action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER;
    return next()->sigaction(SIGSYS, &action, nullptr) == 0;
}

#else

bool catch_calls() { return false; }

#endif

// Has the kernel dispatch the calls of the calling thread.
bool dispatch() {
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, SIGSYS);
    next()->pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
    return kernel::call(SYS_prctl, kSetDispatch, kDispatchOn, libc_begin, libc_end - libc_begin,
                        const_cast<char*>(&selector)) == 0;
}

// What a new thread is to do.
struct Start {
    void* (*function)(void*);
    void* argument;
};

// A program's allocator may make threads, so this does not allocate by it.
Start* make_start(const Start& start) {
    void* page = kernel::mmap(nullptr, sizeof(Start), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return nullptr;
    *static_cast<Start*>(page) = start;
    return static_cast<Start*>(page);
}

void* run_thread(void* made) {
    const Start start = *static_cast<Start*>(made);
    kernel::munmap(made, sizeof(Start));
    watch_thread();
    return start.function(start.argument);
}

}  // namespace

void begin_watching() {
    // Sanitizers make system calls of their own within each function of libc, and TSan keeps a
    // signal back until later.
    if (is_defined("__sanitizer_report_error_summary")) return;
    dl_iterate_phdr(find_libc, nullptr);
    if (libc_begin == 0 || !catch_calls()) return;
    if (!dispatch()) return;
    selector = kBlock;
    sight.store(Sight::kAll);
}

void watch_thread() {
    if (sight.load() == Sight::kAll && !dispatch()) lose_sight();
}

void lose_sight() {
    if (!internal::caching.load(std::memory_order_relaxed)) return;
    if (sight.exchange(Sight::kLost) == Sight::kLost) return;
    selector = kAllow;
    give_all_positions();
    flush_before_program();
}

// The functions that libc calls in a thread of its own are not watched.
void lose_sight_of(const sigevent* event) {
    if (event != nullptr && event->sigev_notify == SIGEV_THREAD) lose_sight();
}

WRAP(int, pthread_create,
     (pthread_t * thread, const pthread_attr_t* attributes, void* (*function)(void*),
      void* argument)) {
    const Next* libc = next();
    const bool watches = sight.load(std::memory_order_relaxed) == Sight::kAll;
    Start* start = watches ? make_start({function, argument}) : nullptr;
    if (watches && start == nullptr) lose_sight();
    if (start == nullptr) return libc->pthread_create(thread, attributes, function, argument);
    const int error = libc->pthread_create(thread, attributes, run_thread, start);
    if (error != 0) kernel::munmap(start, sizeof(Start));
    return error;
}

}  // namespace penstock::preload
