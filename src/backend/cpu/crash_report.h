// Reports a kernel that faults: one line on stderr that names it, and exit code 1.
//
// It acts only on residents' threads, and only while a lane runs. In other cases the previous
// handler runs. It is off with sanitizers, which report more.
#pragma once

#include <memory>

namespace penstock::backend::cpu {

// Installs the handler for SIGSEGV, SIGBUS and SIGFPE, once per process.
void install_crash_report();

// The signal stack of the calling thread while this object exists. The lane's own stack may be the
// one that has overflowed.
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
