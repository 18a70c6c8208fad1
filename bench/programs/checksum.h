// The checksum by which the programs tell what they read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace penstock::bench {

// The Adler-32 checksum, which Python's zlib has too, of bytes that come in pieces.
class Checksum {
public:
    void add(const unsigned char* bytes, size_t size) {
        constexpr uint32_t kModulus = 65521;
        constexpr size_t kPieceMax = 5552;  // so that the sums fit into 32 bits
        for (size_t at = 0; at < size;) {
            for (const size_t end = std::min(size, at + kPieceMax); at < end; ++at) {
                low_ += bytes[at];
                high_ += low_;
            }
            low_ %= kModulus;
            high_ %= kModulus;
        }
    }
    [[nodiscard]] uint32_t value() const { return high_ << 16 | low_; }

private:
    uint32_t low_ = 1, high_ = 0;
};

inline uint32_t checksum(const unsigned char* bytes, size_t size) {
    Checksum sum;
    sum.add(bytes, size);
    return sum.value();
}

}  // namespace penstock::bench
