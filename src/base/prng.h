// A small seeded random number generator for tests and benchmarks. The same seed gives the same run
// on every machine.
//
// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014). One thread
// per object.
#pragma once

#include <cstdint>

namespace penstock::base {

class Prng {
public:
    explicit constexpr Prng(uint64_t seed) : state_(seed) {}

    constexpr uint64_t next() {
        state_ += 0x9e3779b97f4a7c15;
        uint64_t word = state_;
        word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
        word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
        return word ^ (word >> 31);
    }

    // Returns a number in [0, bound); `bound` > 0. The bias is below bound / 2^64.
    constexpr uint64_t below(uint64_t bound) {
        return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
    }

    // Returns a number in [0, 1).
    constexpr double fraction() { return static_cast<double>(next() >> 11) * 0x1p-53; }

private:
    uint64_t state_;
};

}  // namespace penstock::base
