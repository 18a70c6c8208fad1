#include "backend/cpu/crash_report.h"

#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <mutex>

#include "backend/cpu/lanes.h"

namespace penstock::backend::cpu {
namespace {

constexpr size_t kSignalStackSize = 64 << 10;  // AVX-512 state alone takes 3 KiB
constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE};
struct sigaction earlier[3];

// Composes the line with calls that are safe in a signal handler.
class Line {
public:
    void add(const char* text) {
        while (*text != '\0' && used_ < sizeof bytes_) bytes_[used_++] = *text++;
    }
    void add(uint64_t number, unsigned base) {
        char digits[24];
        unsigned count = 0;
        do {
            digits[count++] = "0123456789abcdef"[number % base];
            number /= base;
        } while (number != 0);
        while (count > 0 && used_ < sizeof bytes_) bytes_[used_++] = digits[--count];
    }
    void write() const {
        if (::write(STDERR_FILENO, bytes_, used_) < 0) return;  // nothing else can be done
    }

private:
    char bytes_[512];
    size_t used_ = 0;
};

void report(int signal_number, siginfo_t* info, void* context) {
    const char* what = signal_number == SIGSEGV  ? "segmentation fault at address 0x"
                       : signal_number == SIGBUS ? "bus error at address 0x"
                                                 : "arithmetic error at instruction 0x";
    if (language::current_lane == nullptr) {
        for (unsigned i = 0; i < 3; ++i) {
            if (kSignals[i] != signal_number) continue;
            if ((earlier[i].sa_flags & SA_SIGINFO) != 0)
                return earlier[i].sa_sigaction(signal_number, info, context);
            if (earlier[i].sa_handler != SIG_DFL && earlier[i].sa_handler != SIG_IGN) {
                return earlier[i].sa_handler(signal_number);
            }
        }
        // The faulting instruction runs again and ends the process as it would without this
        // handler.
        signal(signal_number, SIG_DFL);
        return;
    }
    const BlockState& block = *this_block();
    Line line;
    line.add("penstock: kernel ");
    line.add(block.kernel_key);
    line.add(", block (");
    line.add(block.block_index.x, 10);
    line.add(",");
    line.add(block.block_index.y, 10);
    line.add(",");
    line.add(block.block_index.z, 10);
    line.add("): ");
    line.add(what);
    line.add(reinterpret_cast<uintptr_t>(info->si_addr), 16);
    line.add("\n");
    line.write();
    _exit(1);
}

}  // namespace

void install_crash_report() {
    static std::once_flag once;
    if (kAddressSanitizer || kThreadSanitizer) return;
    std::call_once(once, [] {
        for (unsigned i = 0; i < 3; ++i) {
            struct sigaction action {};
            action.sa_sigaction = report;
            action.sa_flags = SA_SIGINFO | SA_ONSTACK;
            sigaction(kSignals[i], &action, &earlier[i]);
        }
    });
}

CrashStack::CrashStack() {
    if (kAddressSanitizer || kThreadSanitizer) return;
    bytes_ = std::make_unique<char[]>(kSignalStackSize);
    stack_t stack{};
    stack.ss_sp = bytes_.get();
    stack.ss_size = kSignalStackSize;
    sigaltstack(&stack, nullptr);
}

CrashStack::~CrashStack() {
    if (bytes_ == nullptr) return;
    stack_t stack{};
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, nullptr);
}

}  // namespace penstock::backend::cpu
