// The monotonic clock in nanoseconds, and a sleep until a given time. Any thread.
//
// Pure rooms take the time as an argument and do not include this.
#pragma once

#include <cstdint>

namespace penstock::base {

// Returns the time since an arbitrary start. It never decreases.
[[nodiscard]] uint64_t monotonic_ns();
// Returns the same time as of the kernel's last tick, up to 10 ms ago, at a fifth of the cost (5
// ns).
[[nodiscard]] uint64_t coarse_ns();

// Sleeps until `deadline_ns` of monotonic_ns(), or some microseconds longer. (The thread's timer
// slack is 50 us by default, more than a fast disk's whole latency.) Signals do not end the sleep
// early.
void sleep_until_ns(uint64_t deadline_ns);

}  // namespace penstock::base
