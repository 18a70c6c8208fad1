// The types __half and __nv_bfloat16 and their pairs, and the conversions to and from them.
#pragma once

#ifndef __NVCC__  // nvcc has the language itself

#include "penstock/language/half.h"

using __half = penstock::language::Reduced<penstock::language::HalfFormat>;
using __half2 = penstock::language::ReducedPair<penstock::language::HalfFormat>;
using __nv_bfloat16 = penstock::language::Reduced<penstock::language::BfloatFormat>;
using __nv_bfloat162 = penstock::language::ReducedPair<penstock::language::BfloatFormat>;
using half = __half;
using half2 = __half2;
using nv_half = __half;
using nv_half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

// Conversions to and from one type of number, in each rounding. `half` is CUDA's word for the
// format in the names of these functions.
#define PENSTOCK_HALF_MODE(T, half, name, from, suffix, mode)                               \
    inline T __##name##2##half##_##suffix(from value) {                                     \
        return T::rounded(static_cast<double>(value), mode);                                \
    }                                                                                       \
    inline from __##half##2##name##_##suffix(T value) {                                     \
        return penstock::language::round_to_integer<from>(mode, static_cast<float>(value)); \
    }
#define PENSTOCK_HALF_INTEGER(T, half, name, from)             \
    PENSTOCK_HALF_MODE(T, half, name, from, rn, FE_TONEAREST)  \
    PENSTOCK_HALF_MODE(T, half, name, from, rz, FE_TOWARDZERO) \
    PENSTOCK_HALF_MODE(T, half, name, from, ru, FE_UPWARD)     \
    PENSTOCK_HALF_MODE(T, half, name, from, rd, FE_DOWNWARD)

// All conversions of one format. `halves` is CUDA's word for a pair.
#define PENSTOCK_HALF_CONVERSIONS(T, half, Pair, halves)                                       \
    PENSTOCK_HALF_INTEGER(T, half, short, short)                                               \
    PENSTOCK_HALF_INTEGER(T, half, ushort, unsigned short)                                     \
    PENSTOCK_HALF_INTEGER(T, half, int, int)                                                   \
    PENSTOCK_HALF_INTEGER(T, half, uint, unsigned)                                             \
    PENSTOCK_HALF_INTEGER(T, half, ll, long long)                                              \
    PENSTOCK_HALF_INTEGER(T, half, ull, unsigned long long)                                    \
    inline float __##half##2float(T value) { return value; }                                   \
    inline T __float2##half(float value) { return value; }                                     \
    inline T __float2##half##_rn(float value) { return value; }                                \
    inline T __float2##half##_rz(float value) { return T::rounded(value, FE_TOWARDZERO); }     \
    inline T __float2##half##_ru(float value) { return T::rounded(value, FE_UPWARD); }         \
    inline T __float2##half##_rd(float value) { return T::rounded(value, FE_DOWNWARD); }       \
    inline T __double2##half(double value) { return value; }                                   \
    inline short __##half##_as_short(T value) { return static_cast<short>(value.bits); }       \
    inline unsigned short __##half##_as_ushort(T value) { return value.bits; }                 \
    inline T __short_as_##half(short bits) { return T::of_bits(static_cast<uint16_t>(bits)); } \
    inline T __ushort_as_##half(unsigned short bits) { return T::of_bits(bits); }              \
    inline Pair __float2##halves##_rn(float value) { return {value, value}; }                  \
    inline Pair __floats2##halves##_rn(float low, float high) { return {low, high}; }          \
    inline Pair __float22##halves##_rn(float2 value) { return {value.x, value.y}; }            \
    inline float2 __##halves##2float2(Pair pair) { return {pair.x, pair.y}; }                  \
    inline Pair __##half##2##halves(T value) { return {value, value}; }                        \
    inline Pair __halves2##halves(T low, T high) { return {low, high}; }                       \
    inline Pair make_##halves(T low, T high) { return {low, high}; }                           \
    inline T __low2##half(Pair pair) { return pair.x; }                                        \
    inline T __high2##half(Pair pair) { return pair.y; }                                       \
    inline Pair __low2##halves(Pair pair) { return {pair.x, pair.x}; }                         \
    inline Pair __high2##halves(Pair pair) { return {pair.y, pair.y}; }                        \
    inline Pair __lows2##halves(Pair a, Pair b) { return {a.x, b.x}; }                         \
    inline Pair __highs2##halves(Pair a, Pair b) { return {a.y, b.y}; }
PENSTOCK_HALF_CONVERSIONS(__half, half, __half2, half2)
PENSTOCK_HALF_CONVERSIONS(__nv_bfloat16, bfloat16, __nv_bfloat162, bfloat162)
#undef PENSTOCK_HALF_CONVERSIONS
#undef PENSTOCK_HALF_INTEGER
#undef PENSTOCK_HALF_MODE

#endif  // __NVCC__
