// Replaces operator new in a test program and counts its calls, for tests that nothing is
// allocated.
//
// Exactly one file of a program must include it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace penstock::base {

inline size_t allocations = 0;  // of this program

}  // namespace penstock::base

// Not inlined, because the compiler would warn that memory from malloc reaches delete.
[[gnu::noinline]] void* operator new(size_t size) {
    ++penstock::base::allocations;
    if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
    std::abort();
}
// Otherwise AddressSanitizer would use its own operator, whose memory must not reach free().
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
    ++penstock::base::allocations;
    return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
