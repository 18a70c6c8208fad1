// CUDA's functions on bits, numbers and clocks.
#pragma once

#ifndef __CUDACC__  // nvcc has the language itself

#include <cmath>
#include <cstdint>
#include <cstring>

#include "penstock/language/runtime.h"

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) {
    return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}

inline unsigned __brev(unsigned x) {
    x = __builtin_bswap32(x);
    x = (x & 0x0f0f0f0f) << 4 | (x >> 4 & 0x0f0f0f0f);
    x = (x & 0x33333333) << 2 | (x >> 2 & 0x33333333);
    return (x & 0x55555555) << 1 | (x >> 1 & 0x55555555);
}
inline unsigned long long __brevll(unsigned long long x) {
    return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
           __brev(static_cast<unsigned>(x >> 32));
}

// Shifts and byte permutations as the PTX instructions define them.
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    uint64_t both = static_cast<uint64_t>(high) << 32 | low;
    return static_cast<unsigned>(both << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    uint64_t both = static_cast<uint64_t>(high) << 32 | low;
    return static_cast<unsigned>(both >> (shift & 31));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    uint64_t both = static_cast<uint64_t>(y) << 32 | x;
    unsigned result = 0;
    for (unsigned i = 0; i < 4; ++i) {
        unsigned from = selector >> (4 * i) & 7;
        unsigned byte = static_cast<unsigned>(both >> (8 * from)) & 0xff;
        if ((selector >> (4 * i) & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}

inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<int64_t>(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}

inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }

template <class T>
T __ldg(const T* address) {
    return *address;
}

// Cycles of some clock that runs evenly; only differences mean anything.
inline long long clock64() {
#if defined(__x86_64__)
    return static_cast<long long>(__builtin_ia32_rdtsc());
#else
    return static_cast<long long>(penstock::language::clock_ns());
#endif
}
// clock() is the C library's, in its own units: the name is taken.

// Lets others run for about as long; at most 20 us, as a hint is all it is.
inline void __nanosleep(unsigned ns) {
    constexpr unsigned kLongest = 20000;
    uint64_t start = penstock::language::clock_ns();
    uint64_t nothing = 0;
    do {
        penstock::language::wait_step(&nothing, 0, 0);
    } while (penstock::language::clock_ns() - start < (ns < kLongest ? ns : kLongest));
}

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __saturatef(float x) { return x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x; }

// The global min and max of CUDA, for the types it lists.
#define PENSTOCK_MIN_MAX(T, A, B)                                                             \
    inline T min(A a, B b) {                                                                  \
        return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a); \
    }                                                                                         \
    inline T max(A a, B b) {                                                                  \
        return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a); \
    }
PENSTOCK_MIN_MAX(int, int, int)
PENSTOCK_MIN_MAX(unsigned, unsigned, unsigned)
PENSTOCK_MIN_MAX(unsigned, int, unsigned)
PENSTOCK_MIN_MAX(unsigned, unsigned, int)
PENSTOCK_MIN_MAX(long, long, long)
PENSTOCK_MIN_MAX(unsigned long, unsigned long, unsigned long)
PENSTOCK_MIN_MAX(unsigned long, long, unsigned long)
PENSTOCK_MIN_MAX(unsigned long, unsigned long, long)
PENSTOCK_MIN_MAX(long long, long long, long long)
PENSTOCK_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
PENSTOCK_MIN_MAX(unsigned long long, long long, unsigned long long)
PENSTOCK_MIN_MAX(unsigned long long, unsigned long long, long long)
PENSTOCK_MIN_MAX(float, float, float)
PENSTOCK_MIN_MAX(double, double, double)
PENSTOCK_MIN_MAX(double, float, double)
PENSTOCK_MIN_MAX(double, double, float)
#undef PENSTOCK_MIN_MAX

#endif  // __CUDACC__
