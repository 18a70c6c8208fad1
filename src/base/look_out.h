// Waiting awake, for what comes sooner than a thread wakes up.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace penstock::base {

// Until `ready` or the time, of microseconds rather than more, is over; whether it is ready. Takes
// a CPU meanwhile.
template <class Ready>
bool look_out(uint64_t ns, const Ready& ready) {
    const uint64_t end = monotonic_ns() + ns;
    do {
        for (int i = 0; i < 32; ++i) {
            if (ready()) return true;
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
    } while (monotonic_ns() < end);
    return false;
}

}  // namespace penstock::base
