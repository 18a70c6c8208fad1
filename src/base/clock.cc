// The only file that asks the system for the time and sleeps.
#include "base/clock.h"

#include <sys/prctl.h>
#include <time.h>

#include <cerrno>

namespace penstock::base {

namespace {

constexpr uint64_t kSecond = 1'000'000'000;

uint64_t read_clock(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<uint64_t>(now.tv_sec) * kSecond + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

uint64_t monotonic_ns() { return read_clock(CLOCK_MONOTONIC); }
uint64_t coarse_ns() { return read_clock(CLOCK_MONOTONIC_COARSE); }

void sleep_until_ns(uint64_t deadline_ns) {
    if (monotonic_ns() >= deadline_ns) return;
    const int slack_ns = prctl(PR_GET_TIMERSLACK);
    prctl(PR_SET_TIMERSLACK, 1UL);  // 0 would mean "back to the default"
    timespec deadline{};
    deadline.tv_sec = static_cast<time_t>(deadline_ns / kSecond);
    deadline.tv_nsec = static_cast<long>(deadline_ns % kSecond);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, nullptr) == EINTR) {
    }
    if (slack_ns > 0) prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack_ns));
}

}  // namespace penstock::base
