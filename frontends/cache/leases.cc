#include "leases.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

namespace penstock::cache_service {
namespace {

int break_signal() { return SIGRTMIN + 3; }

sigset_t break_signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, break_signal());
    sigaddset(&set, SIGIO);  // what the kernel sends when it can queue no more
    return set;
}

}  // namespace

Leases::Leases(std::function<void(int descriptor)> broken) : broken_(std::move(broken)) {
    thread_ = std::thread([this] { work(); });
}

void Leases::block_signal() {
    const sigset_t set = break_signals();
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

Leases::~Leases() {
    stopping_.store(true);
    pthread_kill(thread_.native_handle(), break_signal());
    thread_.join();
}

void Leases::work() {
    const sigset_t set = break_signals();
    for (;;) {
        siginfo_t info{};
        if (sigwaitinfo(&set, &info) < 0) continue;  // EINTR
        if (stopping_.load()) return;
        broken_(info.si_fd);
    }
}

Lease Leases::take(int descriptor) {
    if (fcntl(descriptor, F_SETSIG, break_signal()) != 0) return Lease::kNone;
    if (fcntl(descriptor, F_SETLEASE, F_RDLCK) == 0) {
        // The kernel tells the thread that took it. That one ends with its program's connection.
        if (fcntl(descriptor, F_SETOWN, getpid()) == 0) return Lease::kHeld;
        give_up(descriptor);
        return Lease::kNone;
    }
    return errno == EAGAIN ? Lease::kRefused : Lease::kNone;
}

bool Leases::holds(int descriptor) { return fcntl(descriptor, F_GETLEASE) == F_RDLCK; }

void Leases::give_up(int descriptor) { fcntl(descriptor, F_SETLEASE, F_UNLCK); }

}  // namespace penstock::cache_service
