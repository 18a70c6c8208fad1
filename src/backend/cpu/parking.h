// Threads that sleep until a 64-bit word changes, and who wakes them: one futex lot for the whole
// process.
//
// Any thread may call anything. A notify that finds nobody asleep costs a fence and a load.
#pragma once

#include <chrono>
#include <cstdint>

namespace penstock::backend::cpu {

// Sleeps while `*address == seen`, until a notify of that address or `limit`; may return early.
void sleep_while_same(const uint64_t* address, uint64_t seen, std::chrono::nanoseconds limit);

// The same for a word that counts: whatever changes it changes its low half, and `ring_address`
// wakes as well.
void sleep_until_rung(const uint64_t* address, uint64_t seen, std::chrono::nanoseconds limit);

// Wakes all who sleep on `address`; the caller has stored the new value before.
void notify_addresses(const uint64_t* address, size_t count);

// Wakes one of those who sleep in sleep_until_rung(address); the caller has counted it up before.
void ring_address(const uint64_t* address);

}  // namespace penstock::backend::cpu
