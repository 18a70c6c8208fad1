// The checksum by which the programs tell what they read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace penstock::bench {

// Returns the Adler-32 checksum, which Python's zlib has too.
inline uint32_t checksum(const unsigned char* bytes, size_t size) {
    constexpr uint32_t kModulus = 65521;
    constexpr size_t kPieceMax = 5552;  // so that the sums fit into 32 bits
    uint32_t low = 1, high = 0;
    for (size_t at = 0; at < size;) {
        for (const size_t end = std::min(size, at + kPieceMax); at < end; ++at) {
            low += bytes[at];
            high += low;
        }
        low %= kModulus;
        high %= kModulus;
    }
    return high << 16 | low;
}

}  // namespace penstock::bench
