// Lets threads sleep until a 64-bit word changes, and wakes them. One futex table serves the whole
// process.
//
// Any thread may call anything. A notify without sleepers costs a fence and a load.
#pragma once

#include <chrono>
#include <cstdint>

namespace penstock::backend::cpu {

// Sleeps while `*address == seen`, until a notify of that address or `limit`. May return early.
void sleep_while_same(const uint64_t* address, uint64_t seen, std::chrono::nanoseconds limit);

// Does the same for a counter, whose low half changes with each change. ring_address() wakes it
// too.
void sleep_until_rung(const uint64_t* address, uint64_t seen, std::chrono::nanoseconds limit);

// Wakes all threads that sleep on `address`. The caller must have stored the new value before.
void notify_addresses(const uint64_t* address, size_t count);

// Wakes one of the threads in sleep_until_rung(address). The caller must have increased the counter
// before.
void ring_address(const uint64_t* address);

}  // namespace penstock::backend::cpu
