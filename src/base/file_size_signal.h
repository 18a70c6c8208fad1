// Blocks SIGXFSZ on a thread while it extends files. The kernel sends it with EFBIG, and it ends a
// program that does not expect it. Source: setrlimit(2), RLIMIT_FSIZE.
//
// Only the thread that made an object may use it.
#pragma once

#include <csignal>
#include <ctime>

namespace penstock::base {

// Of this thread.
inline thread_local bool signal_blocked_for_good = false;

class FileSizeSignal {
public:
    // For this project's own threads, at their start. It saves the two system calls of each object,
    // which take about as long as a write of 4 KiB.
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
        sigset_t pending;  // a signal may be pending that is not from here
        was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
    }
    ~FileSizeSignal() {
        if (signal_blocked_for_good || sigismember(&before_, SIGXFSZ) != 0) return;
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    FileSizeSignal(const FileSizeSignal&) = delete;
    FileSizeSignal& operator=(const FileSizeSignal&) = delete;

    // Removes the signal if it has come.
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
