// Keeps SIGXFSZ, which the kernel sends with EFBIG and which ends a program that does not expect
// it, from a thread while it makes files longer. Source: setrlimit(2), RLIMIT_FSIZE.
//
// An object is used by the thread that made it.
#pragma once

#include <csignal>
#include <ctime>

namespace penstock::base {

// Of this thread.
inline thread_local bool signal_blocked_for_good = false;

class FileSizeSignal {
public:
    // For threads of our own, at their start: the two system calls of each object are saved, about
    // as long as a write of 4 KiB takes.
    static void block_for_good() {
        const sigset_t own = set();
        pthread_sigmask(SIG_BLOCK, &own, nullptr);
        signal_blocked_for_good = true;
    }

    FileSizeSignal() {
        if (signal_blocked_for_good) return;
        const sigset_t own = set();
        pthread_sigmask(SIG_BLOCK, &own, &before_);
        if (sigismember(&before_, SIGXFSZ) == 0) return;
        sigset_t pending;  // then one may lie there that is somebody else's
        was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
    }
    ~FileSizeSignal() {
        if (signal_blocked_for_good || sigismember(&before_, SIGXFSZ) != 0) return;
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    FileSizeSignal(const FileSizeSignal&) = delete;
    FileSizeSignal& operator=(const FileSizeSignal&) = delete;

    // The signal may have come: it is over.
    void take() const {
        constexpr timespec kNow{};
        const sigset_t own = set();
        if (!signal_blocked_for_good && !was_pending_) (void)sigtimedwait(&own, nullptr, &kNow);
    }

private:
    static sigset_t set() {
        sigset_t own;
        sigemptyset(&own);
        sigaddset(&own, SIGXFSZ);
        return own;
    }

    sigset_t before_;
    bool was_pending_ = false;
};

}  // namespace penstock::base
