// CUDA's arithmetic with a rounding in its name (__fadd_rz, __dmul_ru ...), fast functions (__expf
// ...) and conversions between numbers (__float2int_rn ...).
//
// Rounding to nearest (_rn) costs as much as plain arithmetic. The other roundings change the
// thread's rounding mode and back, which takes about 20 ns. The fast functions are the C library's,
// which are more exact than a GPU's. Conversions to integers saturate and take NaN to 0, as on a
// GPU; in C++ a plain cast of a value that does not fit is undefined.
#pragma once

#ifndef __NVCC__  // nvcc has the language itself

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "penstock/language/math_header.h"

namespace penstock::language {

// Keeps the compiler from calculating a value ahead, and from fusing two operations into one
// instruction.
template <class T>
inline T kept(T value) {
#if defined(__x86_64__)
    if constexpr (std::is_floating_point_v<T>) {
        __asm__ volatile("" : "+x"(value));
        return value;
    }
#endif
    __asm__ volatile("" : "+g"(value));
    return value;
}

class RoundingMode {
public:
    explicit RoundingMode(int mode) : before_(std::fegetround()) { std::fesetround(mode); }
    ~RoundingMode() { std::fesetround(before_); }
    RoundingMode(const RoundingMode&) = delete;
    RoundingMode& operator=(const RoundingMode&) = delete;

private:
    int before_;
};

template <class Operation, class... T>
auto rounded(int mode, Operation operation, T... values) {
    if (mode == FE_TONEAREST) return kept(operation(kept(values)...));
    const RoundingMode guard(mode);
    return kept(operation(kept(values)...));
}

template <class To, class From>
To to_integer(From value) {  // `value` is whole
    using Limits = std::numeric_limits<To>;
    if (value != value) return 0;
    // 2^n, the first number that does not fit, is exact in every type.
    const From end = std::ldexp(From{1}, Limits::digits);
    if (value >= end) return Limits::max();
    if (value < static_cast<From>(Limits::min())) return Limits::min();
    return static_cast<To>(value);
}
template <class To, class From>
To round_to_integer(int mode, From value) {
    switch (mode) {
        case FE_TOWARDZERO:
            return to_integer<To>(std::trunc(value));
        case FE_UPWARD:
            return to_integer<To>(std::ceil(value));
        case FE_DOWNWARD:
            return to_integer<To>(std::floor(value));
        default:
            return to_integer<To>(std::nearbyint(value));
    }
}

}  // namespace penstock::language

// ---- arithmetic

#define PENSTOCK_ROUNDED(suffix, mode, T, f, fma)                            \
    inline T __##f##add_##suffix(T a, T b) {                                 \
        return penstock::language::rounded(                                  \
            mode, [](T x, T y) { return x + y; }, a, b);                     \
    }                                                                        \
    inline T __##f##sub_##suffix(T a, T b) {                                 \
        return penstock::language::rounded(                                  \
            mode, [](T x, T y) { return x - y; }, a, b);                     \
    }                                                                        \
    inline T __##f##mul_##suffix(T a, T b) {                                 \
        return penstock::language::rounded(                                  \
            mode, [](T x, T y) { return x * y; }, a, b);                     \
    }                                                                        \
    inline T __##f##div_##suffix(T a, T b) {                                 \
        return penstock::language::rounded(                                  \
            mode, [](T x, T y) { return x / y; }, a, b);                     \
    }                                                                        \
    inline T __##f##rcp_##suffix(T a) {                                      \
        return penstock::language::rounded(                                  \
            mode, [](T x) { return T{1} / x; }, a);                          \
    }                                                                        \
    inline T __##f##sqrt_##suffix(T a) {                                     \
        return penstock::language::rounded(                                  \
            mode, [](T x) { return std::sqrt(x); }, a);                      \
    }                                                                        \
    inline T __##fma##_##suffix(T a, T b, T c) {                             \
        return penstock::language::rounded(                                  \
            mode, [](T x, T y, T z) { return std::fma(x, y, z); }, a, b, c); \
    }
#define PENSTOCK_EACH_MODE(macro, ...)                                         \
    macro(rn, FE_TONEAREST, __VA_ARGS__) macro(rz, FE_TOWARDZERO, __VA_ARGS__) \
        macro(ru, FE_UPWARD, __VA_ARGS__) macro(rd, FE_DOWNWARD, __VA_ARGS__)
PENSTOCK_EACH_MODE(PENSTOCK_ROUNDED, float, f, fmaf)
PENSTOCK_EACH_MODE(PENSTOCK_ROUNDED, double, d, fma)
#undef PENSTOCK_ROUNDED

inline float __frsqrt_rn(float x) {
    return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x)));
}
inline float __saturatef(float x) { return x > 0.0f ? (x > 1.0f ? 1.0f : x) : 0.0f; }  // NaN: 0

// ---- fast functions

// The C library's headers declare most of these names, and no library defines them: these are the
// definitions. They are never called, only inlined, so that no program exports the names.
#define PENSTOCK_FAST inline __attribute__((always_inline, visibility("hidden")))
PENSTOCK_FAST float __expf(float x) noexcept { return expf(x); }
PENSTOCK_FAST float __exp10f(float x) noexcept { return static_cast<float>(pow(10.0, x)); }
PENSTOCK_FAST float __logf(float x) noexcept { return logf(x); }
PENSTOCK_FAST float __log2f(float x) noexcept { return log2f(x); }
PENSTOCK_FAST float __log10f(float x) noexcept { return log10f(x); }
PENSTOCK_FAST float __sinf(float x) noexcept { return sinf(x); }
PENSTOCK_FAST float __cosf(float x) noexcept { return cosf(x); }
PENSTOCK_FAST float __tanf(float x) noexcept { return tanf(x); }
PENSTOCK_FAST float __tanhf(float x) noexcept { return tanhf(x); }
PENSTOCK_FAST float __powf(float x, float y) noexcept { return powf(x, y); }
PENSTOCK_FAST void __sincosf(float x, float* sine, float* cosine) noexcept {
    *sine = sinf(x);
    *cosine = cosf(x);
}
inline float __fdividef(float x, float y) { return x / y; }
inline float fdividef(float x, float y) { return x / y; }
inline double fdivide(double x, double y) { return x / y; }
#undef PENSTOCK_FAST

// ---- the bits of a number

inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
inline int __double2hiint(double x) {
    return static_cast<int>(__builtin_bit_cast(uint64_t, x) >> 32);
}
inline int __double2loint(double x) { return static_cast<int>(__builtin_bit_cast(uint64_t, x)); }
inline double __hiloint2double(int high, int low) {
    return __builtin_bit_cast(double, static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 |
                                          static_cast<uint32_t>(low));
}

// ---- conversions

#define PENSTOCK_TO_INTEGERS(suffix, mode, From, name)                            \
    inline int __##name##2int_##suffix(From x) {                                  \
        return penstock::language::round_to_integer<int>(mode, x);                \
    }                                                                             \
    inline unsigned __##name##2uint_##suffix(From x) {                            \
        return penstock::language::round_to_integer<unsigned>(mode, x);           \
    }                                                                             \
    inline long long __##name##2ll_##suffix(From x) {                             \
        return penstock::language::round_to_integer<long long>(mode, x);          \
    }                                                                             \
    inline unsigned long long __##name##2ull_##suffix(From x) {                   \
        return penstock::language::round_to_integer<unsigned long long>(mode, x); \
    }
PENSTOCK_EACH_MODE(PENSTOCK_TO_INTEGERS, float, float)
PENSTOCK_EACH_MODE(PENSTOCK_TO_INTEGERS, double, double)
#undef PENSTOCK_TO_INTEGERS

#define PENSTOCK_TO_REAL(suffix, mode, From, name, To)              \
    inline To __##name##_##suffix(From from) {                      \
        return penstock::language::rounded(                         \
            mode, [](From x) { return static_cast<To>(x); }, from); \
    }
PENSTOCK_EACH_MODE(PENSTOCK_TO_REAL, int, int2float, float)
PENSTOCK_EACH_MODE(PENSTOCK_TO_REAL, unsigned, uint2float, float)
PENSTOCK_EACH_MODE(PENSTOCK_TO_REAL, long long, ll2float, float)
PENSTOCK_EACH_MODE(PENSTOCK_TO_REAL, unsigned long long, ull2float, float)
PENSTOCK_EACH_MODE(PENSTOCK_TO_REAL, long long, ll2double, double)
PENSTOCK_EACH_MODE(PENSTOCK_TO_REAL, unsigned long long, ull2double, double)
PENSTOCK_EACH_MODE(PENSTOCK_TO_REAL, double, double2float, float)
#undef PENSTOCK_TO_REAL
#undef PENSTOCK_EACH_MODE
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }

#endif  // __NVCC__
