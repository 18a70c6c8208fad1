// The 16-bit formats with which GPUs calculate: IEEE half precision and bfloat16.
//
// A number of either format is a Reduced<Format>. Sums, products, quotients and roots are
// calculated in float and rounded once more. That gives the correctly rounded result, because float
// has more than twice the digits. This header does not know CUDA's names, which are in
// language/half.h.
#pragma once

#ifndef __NVCC__  // nvcc has the language itself

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace penstock::language {

struct HalfFormat {
    static constexpr int kDigits = 10;     // stored bits of the mantissa
    static constexpr int kSmallest = -14;  // exponent of the smallest normal number
    static constexpr uint16_t kInfinity = 0x7c00;

    static uint16_t from_float(float value) {
        const auto word = __builtin_bit_cast(uint32_t, value);
        const uint32_t sign = word >> 16 & 0x8000;
        uint32_t rest = word & 0x7fffffff;
        if (rest > 0x7f800000) return 0x7fff;
        if (rest >= 0x47800000) return static_cast<uint16_t>(sign | kInfinity);  // 65536
        if (rest < 0x38800000) {  // 2^-14: adding 0.5 moves the digits to where a half has them
            const float moved = __builtin_bit_cast(float, rest) + 0.5f;
            return static_cast<uint16_t>(sign | (__builtin_bit_cast(uint32_t, moved) - 0x3f000000));
        }
        rest += (static_cast<uint32_t>(15 - 127) << 23) + 0xfff + (rest >> 13 & 1);
        return static_cast<uint16_t>(sign | rest >> 13);
    }
    static float to_float(uint16_t bits) {
        const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
        const uint32_t rest = bits & 0x7fff;
        if (rest >= kInfinity)
            return __builtin_bit_cast(float, sign | 0x7f800000 | (rest & 0x3ff) << 13);
        if (rest >= 0x400) return __builtin_bit_cast(float, sign | ((rest << 13) + (112u << 23)));
        const float small = static_cast<float>(rest) * 0x1p-24f;
        return sign != 0 ? -small : small;
    }
};

struct BfloatFormat {
    static constexpr int kDigits = 7;
    static constexpr int kSmallest = -126;
    static constexpr uint16_t kInfinity = 0x7f80;

    static uint16_t from_float(float value) {
        const auto word = __builtin_bit_cast(uint32_t, value);
        if ((word & 0x7fffffff) > 0x7f800000) return 0x7fff;
        return static_cast<uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
    }
    static float to_float(uint16_t bits) {
        return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
    }
};

// Returns the bits of `value` in a format, rounded by a mode of <cfenv>.
template <class Format>
uint16_t round_to_format(double value, int mode) {
    if (value != value) return 0x7fff;
    const bool negative = std::signbit(value);
    const auto sign = static_cast<uint16_t>(negative ? 0x8000 : 0);
    const double size = std::fabs(value);
    if (size == 0.0) return sign;
    if (std::isinf(size)) return sign | Format::kInfinity;
    const int exponent = std::ilogb(size);
    const bool normal = exponent >= Format::kSmallest;
    const int last = (normal ? exponent : Format::kSmallest) - Format::kDigits;
    const double scaled = std::ldexp(size, -last);  // the digits that stay are before the point
    double kept_digits = std::floor(scaled);
    const double lost = scaled - kept_digits;
    const bool up = mode == FE_UPWARD ? !negative : mode == FE_DOWNWARD && negative;
    if (mode == FE_TONEAREST) {
        const bool odd = std::fmod(kept_digits, 2.0) != 0.0;
        if (lost > 0.5 || (lost == 0.5 && odd)) kept_digits += 1.0;
    } else if (up && lost > 0.0) {
        kept_digits += 1.0;
    }
    const auto digits = static_cast<int64_t>(kept_digits);
    const int64_t above = normal ? int64_t{exponent - Format::kSmallest} << Format::kDigits : 0;
    const int64_t bits = above + digits;
    if (bits < Format::kInfinity) return static_cast<uint16_t>(sign | bits);
    const bool stays = mode == FE_TOWARDZERO || (mode != FE_TONEAREST && !up);
    return static_cast<uint16_t>(sign | (stays ? Format::kInfinity - 1 : Format::kInfinity));
}

// Returns a*b + c with one rounding to the format. The product is exact in double. If digits of the
// sum were lost, its last digit is made odd, so that the second rounding is correct.
template <class Format>
uint16_t fused_multiply_add(float a, float b, float c) {
    const double product = static_cast<double>(a) * b;
    double sum = product + c;
    if (std::isfinite(sum)) {
        const double part = sum - product;
        const double lost = (product - (sum - part)) + (c - part);
        auto bits = __builtin_bit_cast(uint64_t, sum);
        if (lost != 0.0 && (bits & 1) == 0) {
            const bool outward = (lost > 0.0) == (sum > 0.0);
            bits = outward ? bits + 1 : bits - 1;
            sum = __builtin_bit_cast(double, bits);
        }
    }
    return round_to_format<Format>(sum, FE_TONEAREST);
}

template <class Format>
struct Reduced {
    uint16_t bits;

    Reduced() = default;
    Reduced(float value) : bits(Format::from_float(value)) {}
    template <class T>
    requires(std::is_arithmetic_v<T> && !std::is_same_v<T, float>) Reduced(T value)
        : bits(round_to_format<Format>(static_cast<double>(value), FE_TONEAREST)) {}
    operator float() const { return Format::to_float(bits); }

    static Reduced of_bits(uint16_t bits) {
        Reduced result;
        result.bits = bits;
        return result;
    }
    static Reduced rounded(double value, int mode) {
        return of_bits(round_to_format<Format>(value, mode));
    }

    friend Reduced operator+(Reduced a, Reduced b) {
        return static_cast<float>(a) + static_cast<float>(b);
    }
    friend Reduced operator-(Reduced a, Reduced b) {
        return static_cast<float>(a) - static_cast<float>(b);
    }
    friend Reduced operator*(Reduced a, Reduced b) {
        return static_cast<float>(a) * static_cast<float>(b);
    }
    friend Reduced operator/(Reduced a, Reduced b) {
        return static_cast<float>(a) / static_cast<float>(b);
    }
    friend bool operator==(Reduced a, Reduced b) {
        return static_cast<float>(a) == static_cast<float>(b);
    }
    friend auto operator<=>(Reduced a, Reduced b) {
        return static_cast<float>(a) <=> static_cast<float>(b);
    }
    Reduced operator+() const { return *this; }
    Reduced operator-() const { return of_bits(bits ^ 0x8000); }
    Reduced& operator+=(Reduced other) { return *this = *this + other; }
    Reduced& operator-=(Reduced other) { return *this = *this - other; }
    Reduced& operator*=(Reduced other) { return *this = *this * other; }
    Reduced& operator/=(Reduced other) { return *this = *this / other; }
    Reduced& operator++() { return *this += Reduced(1.0f); }
    Reduced& operator--() { return *this -= Reduced(1.0f); }
};

// A pair of numbers in one word.
template <class Format>
struct alignas(4) ReducedPair {
    Reduced<Format> x, y;

    ReducedPair() = default;
    ReducedPair(Reduced<Format> low, Reduced<Format> high) : x(low), y(high) {}

    friend ReducedPair operator+(ReducedPair a, ReducedPair b) { return {a.x + b.x, a.y + b.y}; }
    friend ReducedPair operator-(ReducedPair a, ReducedPair b) { return {a.x - b.x, a.y - b.y}; }
    friend ReducedPair operator*(ReducedPair a, ReducedPair b) { return {a.x * b.x, a.y * b.y}; }
    friend ReducedPair operator/(ReducedPair a, ReducedPair b) { return {a.x / b.x, a.y / b.y}; }
    friend bool operator==(ReducedPair a, ReducedPair b) { return a.x == b.x && a.y == b.y; }
    ReducedPair operator-() const { return {-x, -y}; }
    ReducedPair& operator+=(ReducedPair other) { return *this = *this + other; }
    ReducedPair& operator-=(ReducedPair other) { return *this = *this - other; }
    ReducedPair& operator*=(ReducedPair other) { return *this = *this * other; }
    ReducedPair& operator/=(ReducedPair other) { return *this = *this / other; }
};

}  // namespace penstock::language

#endif  // __NVCC__
