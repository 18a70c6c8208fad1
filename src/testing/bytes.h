// Bytes of tests: made and compared.
//
// ThreadSanitizer follows every access to memory, which takes ten times as long, and tests look at
// many bytes. That somebody wrote without being waited for shows at one byte of each cache line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/prng.h"
#include "testing/effort.h"

#if defined(__SANITIZE_THREAD__)
#define PENSTOCK_NOT_FOLLOWED __attribute__((no_sanitize("thread")))
#else
#define PENSTOCK_NOT_FOLLOWED
#endif

namespace penstock::testing {

using Bytes = std::vector<std::byte>;

PENSTOCK_NOT_FOLLOWED inline void fill_randomly(std::byte* to, size_t size, uint64_t seed) {
    base::Prng prng(seed);
    for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
        const uint64_t word = prng.next();
        for (size_t k = 0; k < sizeof word && i + k < size; ++k)
            to[i + k] = static_cast<std::byte>(word >> 8 * k);
    }
}

// The same for the same seed.
inline Bytes random_bytes(uint64_t seed, size_t size) {
    Bytes bytes(size);
    fill_randomly(bytes.data(), size, seed);
    return bytes;
}

// Accesses of one byte in each 64, which ThreadSanitizer follows.
inline void touch(const void* bytes, size_t size) {
    const auto* at = static_cast<const volatile std::byte*>(bytes);
    for (size_t i = 0; i < size; i += 64) (void)at[i];
    if (size > 0) (void)at[size - 1];
}

PENSTOCK_NOT_FOLLOWED inline size_t difference(const std::byte* one, const std::byte* other,
                                               size_t size) {
    size_t i = 0;
    for (; i + sizeof(uint64_t) <= size; i += sizeof(uint64_t)) {
        uint64_t a, b;
        __builtin_memcpy(&a, one + i, sizeof a);
        __builtin_memcpy(&b, other + i, sizeof b);
        if (a != b) break;
    }
    while (i < size && one[i] == other[i]) ++i;
    return i;
}

// Where the first byte is that differs; `size`: none does.
inline size_t first_difference(const void* one, const void* other, size_t size) {
    if (kThreadSanitizer) {
        touch(one, size);
        touch(other, size);
    }
    return difference(static_cast<const std::byte*>(one), static_cast<const std::byte*>(other),
                      size);
}

inline bool equal(const void* one, const void* other, size_t size) {
    if (!kThreadSanitizer) return std::memcmp(one, other, size) == 0;
    return first_difference(one, other, size) == size;
}

}  // namespace penstock::testing
