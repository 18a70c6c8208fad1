// The operator new of a test program that counts: for tests of what allocates nothing.
//
// One file of a program includes it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace penstock::base {

inline size_t allocations = 0;  // of this program

}  // namespace penstock::base

// Not inlined: the compiler would see malloc meet delete.
[[gnu::noinline]] void* operator new(size_t size) {
    ++penstock::base::allocations;
    if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
    std::abort();
}
// AddressSanitizer has one of its own otherwise, whose memory free() would be told of.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
    ++penstock::base::allocations;
    return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
