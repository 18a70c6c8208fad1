// What a kernel that faults leaves behind: one line on stderr that names it, and exit code 1.
//
// Only on residents' threads and only while a lane runs; everywhere else the handler that was there
// before goes on. Not with sanitizers, which tell more.
#pragma once

#include <memory>

namespace penstock::backend::cpu {

// Installs the handler for SIGSEGV, SIGBUS and SIGFPE, once a process.
void install_crash_report();

// The signal stack of the calling thread while this object lives: a lane's own may be what has
// overflowed.
class CrashStack {
public:
    CrashStack();
    ~CrashStack();
    CrashStack(const CrashStack&) = delete;
    CrashStack& operator=(const CrashStack&) = delete;

private:
    std::unique_ptr<char[]> bytes_;
};

}  // namespace penstock::backend::cpu
