// The monotonic clock in nanoseconds, and a sleep that ends at a given time of it. Any thread.
//
// Pure rooms take the time as an argument and do not include this.
#pragma once

#include <cstdint>

namespace penstock::base {

// Since an arbitrary start; never goes back.
[[nodiscard]] uint64_t monotonic_ns();
// The same as of the kernel's last tick, up to 10 ms ago, at a fifth of the cost (5 ns).
[[nodiscard]] uint64_t coarse_ns();

// Returns at `deadline_ns` of monotonic_ns() or at most some microseconds later (the thread's timer
// slack is 50 us by default: more than a fast disk's whole latency). Signals do not end it early.
void sleep_until_ns(uint64_t deadline_ns);

}  // namespace penstock::base
