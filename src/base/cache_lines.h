// A hint about lines of the CPU's caches.
#pragma once

#include <cstddef>

namespace penstock::base {

// Hints that a device will soon read bytes that this CPU has just written. Their lines should move
// to the cache that all CPUs share. Does nothing if the CPU has no such instruction.
inline void demote(const void* bytes, size_t size) {
#if defined(__x86_64__)
    constexpr size_t kLineSize = 64;
    const auto* line = static_cast<const volatile char*>(bytes);
    // CLDEMOTE is a no-operation on CPUs that do not have it.
    for (size_t i = 0; i < size; i += kLineSize) asm volatile("cldemote %0" : : "m"(line[i]));
#else
    (void)bytes;
    (void)size;
#endif
}

}  // namespace penstock::base
