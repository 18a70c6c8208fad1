// Spins for events that come sooner than a thread can wake up.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace penstock::base {

// Spins until `ready` or until the time is over, which should be microseconds. Returns whether it
// is ready. Uses a CPU meanwhile.
template <class Ready>
bool spin_until(uint64_t ns, const Ready& ready) {
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
