// CUDA's functions on integers and bits that are one instruction of a GPU.
#pragma once

#ifndef __NVCC__  // nvcc has the language itself

#include <cstdint>

#include "penstock/language/vectors.h"

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

// Returns the index of the n-th set bit of `mask`, counted from bit `base`: upwards for n > 0,
// downwards for n < 0. For n = 0 it returns `base` if that bit is set. 0xffffffff: there is none.
inline unsigned __fns(unsigned mask, unsigned base, int n) {
    if (n == 0) return base < 32 && (mask >> base & 1) != 0 ? base : 0xffffffffu;
    const int step = n > 0 ? 1 : -1;
    int left = n > 0 ? n : -n;
    for (int64_t bit = base; bit >= 0 && bit < 32; bit += step) {
        if ((mask >> bit & 1) != 0 && --left == 0) return static_cast<unsigned>(bit);
    }
    return 0xffffffffu;
}

// Shifts and byte permutations as the PTX instructions define them: the plain ones take the shift
// modulo 32, _lc and _rc stop at 32.
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    uint64_t both = static_cast<uint64_t>(high) << 32 | low;
    return static_cast<unsigned>(both << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    uint64_t both = static_cast<uint64_t>(high) << 32 | low;
    return static_cast<unsigned>(both >> (shift & 31));
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? high : __funnelshift_r(low, high, shift);
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

// ---- products: the high halves, and of 24 bits

inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<int64_t>(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline long long __mul64hi(long long a, long long b) {
    return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
inline int __mul24(int a, int b) {
    const auto low = [](int x) {
        return static_cast<int64_t>(static_cast<int>(static_cast<unsigned>(x) << 8) >> 8);
    };
    return static_cast<int>(static_cast<uint32_t>(low(a) * low(b)));
}
inline unsigned long long __umul_wide(unsigned a, unsigned b) {
    return static_cast<unsigned long long>(a) * b;
}

// ---- differences and averages; no step overflows

inline unsigned __usad(unsigned x, unsigned y, unsigned z) { return (x > y ? x - y : y - x) + z; }
inline unsigned __sad(int x, int y, unsigned z) {
    const int64_t difference = static_cast<int64_t>(x) - y;
    return static_cast<unsigned>(difference < 0 ? -difference : difference) + z;
}
inline int __hadd(int x, int y) { return static_cast<int>((static_cast<int64_t>(x) + y) >> 1); }
inline int __rhadd(int x, int y) {
    return static_cast<int>((static_cast<int64_t>(x) + y + 1) >> 1);
}
inline unsigned __uhadd(unsigned x, unsigned y) {
    return static_cast<unsigned>((static_cast<uint64_t>(x) + y) >> 1);
}
inline unsigned __urhadd(unsigned x, unsigned y) {
    return static_cast<unsigned>((static_cast<uint64_t>(x) + y + 1) >> 1);
}

// ---- dot products of bytes, and of 16-bit numbers with bytes, plus `c`

inline int __dp4a(int a, int b, int c) {
    auto sum = static_cast<unsigned>(c);
    for (unsigned i = 0; i < 32; i += 8) {
        sum += static_cast<unsigned>(static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i));
    }
    return static_cast<int>(sum);
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (unsigned i = 0; i < 32; i += 8) c += (a >> i & 0xff) * (b >> i & 0xff);
    return c;
}
inline int __dp4a(char4 a, char4 b, int c) {
    return __dp4a(__builtin_bit_cast(int, a), __builtin_bit_cast(int, b), c);
}
inline unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) {
    return __dp4a(__builtin_bit_cast(unsigned, a), __builtin_bit_cast(unsigned, b), c);
}

namespace penstock::language {

// Multiplies the 16-bit halves of `a` with the bytes of `b` from bit `first` on; adds both to `c`.
inline int dot_of_two(int a, int b, int c, unsigned first) {
    auto sum = static_cast<unsigned>(c);
    for (unsigned i = 0; i < 2; ++i) {
        sum += static_cast<unsigned>(static_cast<int16_t>(a >> 16 * i) *
                                     static_cast<int8_t>(b >> (first + 8 * i)));
    }
    return static_cast<int>(sum);
}
inline unsigned dot_of_two(unsigned a, unsigned b, unsigned c, unsigned first) {
    for (unsigned i = 0; i < 2; ++i) c += (a >> 16 * i & 0xffff) * (b >> (first + 8 * i) & 0xff);
    return c;
}

}  // namespace penstock::language

inline int __dp2a_lo(int a, int b, int c) { return penstock::language::dot_of_two(a, b, c, 0); }
inline int __dp2a_hi(int a, int b, int c) { return penstock::language::dot_of_two(a, b, c, 16); }
inline unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) {
    return penstock::language::dot_of_two(a, b, c, 0);
}
inline unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) {
    return penstock::language::dot_of_two(a, b, c, 16);
}

#endif  // __NVCC__
