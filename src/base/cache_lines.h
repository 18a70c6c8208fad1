// A hint about lines of the CPU's caches.
#pragma once

#include <cstddef>

namespace penstock::base {

// What this CPU has just written to these bytes is about to be read by a device: its lines had
// better lie in the cache that all CPUs share. Does nothing on a CPU that does not know how.
inline void demote(const void* bytes, size_t size) {
#if defined(__x86_64__)
    constexpr size_t kLineSize = 64;
    const auto* line = static_cast<const volatile char*>(bytes);
    // CLDEMOTE, which is a no-operation where there is none.
    for (size_t i = 0; i < size; i += kLineSize) asm volatile("cldemote %0" : : "m"(line[i]));
#else
    (void)bytes;
    (void)size;
#endif
}

}  // namespace penstock::base
