// CUDA's mathematical functions that C++ lacks: rsqrt, sinpi, normcdf, erfinv, norm3d ...; and min
// and max. Most are calculated in double, and their float forms round that once.
#pragma once

#ifndef __NVCC__  // nvcc has the language itself

#include <stdlib.h>  // abs of every type, in the global namespace

#include <cmath>
#include <limits>
#include <type_traits>
#include "penstock/language/math_header.h"

namespace penstock::language {

inline constexpr double kPi = 3.14159265358979323846;
inline constexpr double kSquareRootOfTwo = 1.41421356237309504880;
inline constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

// Returns exp(x*x)*erfc(x), which stays in range where erfc does not.
inline double scaled_erfc(double x) {
    if (x < 25.0) {
        const double square = x * x;
        const double lost = std::fma(x, x, -square);  // the rounding error of the square
        return std::exp(square) * (1.0 + lost) * std::erfc(x);
    }
    const double r = 1.0 / (x * x);  // the series in 1/x^2; four terms suffice for double
    const double series = 1.0 - 0.5 * r * (1.0 - 1.5 * r * (1.0 - 2.5 * r * (1.0 - 3.5 * r)));
    return series / (x * std::sqrt(kPi));
}

// Returns the x for which erfc(x) = y: a first estimate by a logarithm, then third-order Newton
// steps.
inline double inverse_erfc(double y) {
    if (!(y >= 0.0 && y <= 2.0)) return kNotANumber;
    if (y == 0.0) return std::numeric_limits<double>::infinity();
    if (y == 2.0) return -std::numeric_limits<double>::infinity();
    if (y == 1.0) return 0.0;
    const double tail = y < 1.0 ? y : 2.0 - y;
    const double t = std::sqrt(-2.0 * std::log(tail / 2.0));
    double x = (t - (2.30753 + t * 0.27061) / (1.0 + t * (0.99229 + t * 0.04481))) /
               kSquareRootOfTwo;
    for (int i = 0; i < 4; ++i) {
        // (erfc(x) - tail) / derivative, without the factor exp(-x*x), which may underflow.
        const double error = scaled_erfc(x) - tail * std::exp(x * x);
        const double step = error * std::sqrt(kPi) / 2.0;
        x += step / (1.0 + x * step);
    }
    return y < 1.0 ? x : -x;
}

// Returns the x for which erf(x) = y. Near 0 the complement loses y's last digits, so one more step
// follows there.
inline double inverse_erf(double y) {
    if (!(y >= -1.0 && y <= 1.0)) return kNotANumber;
    if (y == 0.0) return y;
    if (std::fabs(y) > 0.5) return y > 0.0 ? inverse_erfc(1.0 - y) : -inverse_erfc(1.0 + y);
    double x = y * std::sqrt(kPi) / 2.0;
    for (int i = 0; i < 6; ++i) {
        const double step = (std::erf(x) - y) * std::sqrt(kPi) / 2.0 * std::exp(x * x);
        x -= step / (1.0 + x * step);
    }
    return x;
}

// Return sin and cos of pi*x: x is reduced exactly to one turn.
inline double sine_of_turns(double x) {
    if (!std::isfinite(x)) return kNotANumber;
    double r = std::remainder(x, 2.0);  // -1 to 1
    if (r > 0.5) r = 1.0 - r;
    if (r < -0.5) r = -1.0 - r;
    if (r == 0.0) return std::copysign(0.0, x);
    return std::sin(kPi * r);
}
inline double cosine_of_turns(double x) {
    if (!std::isfinite(x)) return kNotANumber;
    const double r = std::fabs(std::remainder(x, 2.0));  // 0 to 1
    if (r == 0.5) return 0.0;
    if (r < 0.25) return std::cos(kPi * r);
    return r < 0.75 ? std::sin(kPi * (0.5 - r)) : -std::cos(kPi * (1.0 - r));
}

// Returns the modified Bessel function of order 0 or 1, by its series (all terms have one sign).
inline double modified_bessel(int order, double x) {
    const double quarter = x * x / 4.0;
    double term = order == 0 ? 1.0 : x / 2.0, sum = term;
    constexpr int kTermsMax = 2000;  // enough up to 713, where the result leaves double
    for (int k = 1; k < kTermsMax && std::fabs(term) > std::fabs(sum) * 1e-17; ++k) {
        term *= quarter / (static_cast<double>(k) * (k + order));
        sum += term;
    }
    return sum;
}

template <class T>
T norm_of(int count, const T* values) {
    double sum = 0.0, largest = 0.0;
    for (int i = 0; i < count; ++i)
        largest = std::fmax(largest, std::fabs(static_cast<double>(values[i])));
    if (largest == 0.0 || std::isinf(largest)) return static_cast<T>(largest);
    for (int i = 0; i < count; ++i) {
        const double part = values[i] / largest;
        sum += part * part;
    }
    return static_cast<T>(largest * std::sqrt(sum));
}

}  // namespace penstock::language

// Defines `name`(double) and `name`f(float), both from the double `expression`. They are noexcept
// where the C library declares the same name.
#define PENSTOCK_FUNCTION_1(name, expression)                    \
    inline double name(double x) noexcept { return expression; } \
    inline float name##f(float a) noexcept {                     \
        const double x = a;                                      \
        return static_cast<float>(expression);                   \
    }
PENSTOCK_FUNCTION_1(rcbrt, 1.0 / std::cbrt(x))
PENSTOCK_FUNCTION_1(sinpi, penstock::language::sine_of_turns(x))
PENSTOCK_FUNCTION_1(cospi, penstock::language::cosine_of_turns(x))
PENSTOCK_FUNCTION_1(erfcx, penstock::language::scaled_erfc(x))
PENSTOCK_FUNCTION_1(erfinv, penstock::language::inverse_erf(x))
PENSTOCK_FUNCTION_1(erfcinv, penstock::language::inverse_erfc(x))
PENSTOCK_FUNCTION_1(normcdf, 0.5 * std::erfc(-x / penstock::language::kSquareRootOfTwo))
PENSTOCK_FUNCTION_1(normcdfinv,
                    -penstock::language::kSquareRootOfTwo* penstock::language::inverse_erfc(2.0 *
                                                                                            x))
PENSTOCK_FUNCTION_1(cyl_bessel_i0, penstock::language::modified_bessel(0, x))
PENSTOCK_FUNCTION_1(cyl_bessel_i1, penstock::language::modified_bessel(1, x))
#undef PENSTOCK_FUNCTION_1

inline double rsqrt(double x) noexcept { return 1.0 / std::sqrt(x); }
inline float rsqrtf(float x) noexcept { return 1.0f / std::sqrt(x); }
inline double rhypot(double x, double y) { return 1.0 / std::hypot(x, y); }
inline float rhypotf(float x, float y) {
    return static_cast<float>(rhypot(static_cast<double>(x), static_cast<double>(y)));
}
inline double norm(int count, const double* values) {
    return penstock::language::norm_of(count, values);
}
inline float normf(int count, const float* values) {
    return penstock::language::norm_of(count, values);
}
inline double rnorm(int count, const double* values) { return 1.0 / norm(count, values); }
inline float rnormf(int count, const float* values) { return 1.0f / normf(count, values); }
#define PENSTOCK_NORMS(T, f)                                                 \
    inline T norm3d##f(T a, T b, T c) {                                      \
        const T values[] = {a, b, c};                                        \
        return penstock::language::norm_of(3, values);                       \
    }                                                                        \
    inline T norm4d##f(T a, T b, T c, T d) {                                 \
        const T values[] = {a, b, c, d};                                     \
        return penstock::language::norm_of(4, values);                       \
    }                                                                        \
    inline T rnorm3d##f(T a, T b, T c) { return T{1} / norm3d##f(a, b, c); } \
    inline T rnorm4d##f(T a, T b, T c, T d) { return T{1} / norm4d##f(a, b, c, d); }
PENSTOCK_NORMS(double, )
PENSTOCK_NORMS(float, f)
#undef PENSTOCK_NORMS

inline void sincospi(double x, double* sine, double* cosine) {
    *sine = sinpi(x);
    *cosine = cospi(x);
}
inline void sincospif(float x, float* sine, float* cosine) {
    *sine = sinpif(x);
    *cosine = cospif(x);
}

// CUDA's global min and max, for the types that CUDA lists.
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
#undef PENSTOCK_MIN_MAX

// For floating point: a NaN argument is ignored, as in fmin and fmax.
#define PENSTOCK_MIN_MAX(T, A, B)       \
    inline T min(A x, B y) {            \
        const T a = x, b = y;           \
        return a < b || b != b ? a : b; \
    }                                   \
    inline T max(A x, B y) {            \
        const T a = x, b = y;           \
        return b < a || b != b ? a : b; \
    }
PENSTOCK_MIN_MAX(float, float, float)
PENSTOCK_MIN_MAX(double, double, double)
PENSTOCK_MIN_MAX(double, float, double)
PENSTOCK_MIN_MAX(double, double, float)
#undef PENSTOCK_MIN_MAX

// For two other types, which CUDA leaves to the caller to convert, if C++ has a common type.
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B> && !std::is_same_v<A, B>) auto min(A a,
                                                                                              B b) {
    using T = std::common_type_t<A, B>;
    return min(static_cast<T>(a), static_cast<T>(b));
}
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B> && !std::is_same_v<A, B>) auto max(A a,
                                                                                              B b) {
    using T = std::common_type_t<A, B>;
    return max(static_cast<T>(a), static_cast<T>(b));
}

inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
inline long long llmin(long long a, long long b) { return min(a, b); }
inline long long llmax(long long a, long long b) { return max(a, b); }
inline unsigned long long ullmin(unsigned long long a, unsigned long long b) { return min(a, b); }
inline unsigned long long ullmax(unsigned long long a, unsigned long long b) { return max(a, b); }

#endif  // __NVCC__
