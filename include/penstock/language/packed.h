// CUDA's SIMD functions on two 16-bit or four 8-bit numbers in one 32-bit word: __vadd4, __vmaxs2
// ...
#pragma once

#ifndef __NVCC__  // nvcc has the language itself

#include <cstdint>
#include <limits>
#include <type_traits>

#include "penstock/language/mathematics.h"

namespace penstock::language {

// Applies `operation` to each part of the words, as int: every result of one operation fits. Parts
// have type Part; the low bits of the results are put together.
template <class Part, class Operation>
unsigned for_each_part(unsigned a, unsigned b, Operation operation) {
    constexpr unsigned kBits = 8 * sizeof(Part);
    using Unsigned = std::make_unsigned_t<Part>;
    unsigned result = 0;
    for (unsigned i = 0; i < 32; i += kBits) {
        const int value = operation(static_cast<int>(static_cast<Part>(a >> i)),
                                    static_cast<int>(static_cast<Part>(b >> i)));
        result |= static_cast<unsigned>(static_cast<Unsigned>(value)) << i;
    }
    return result;
}

template <class Part>
int saturate(int value) {
    constexpr int kMin = std::numeric_limits<Part>::min(), kMax = std::numeric_limits<Part>::max();
    return value < kMin ? kMin : value > kMax ? kMax : value;
}
inline int magnitude(int value) { return value < 0 ? -value : value; }

template <class Part>
unsigned sum_of_differences(unsigned a, unsigned b) {
    unsigned sum = 0;
    for (unsigned i = 0; i < 32; i += 8 * sizeof(Part)) {
        sum += static_cast<unsigned>(
            magnitude(static_cast<Part>(a >> i) - static_cast<Part>(b >> i)));
    }
    return sum;
}

}  // namespace penstock::language

#define PENSTOCK_PARTS_OF_ONE(name, Part, expression)                                  \
    inline unsigned name(unsigned word) {                                              \
        return ::penstock::language::for_each_part<Part>(                              \
            word, 0, [](int a, [[maybe_unused]] int b) -> int { return expression; }); \
    }
#define PENSTOCK_PARTS(name, Part, expression)                                 \
    inline unsigned name(unsigned words_a, unsigned words_b) {                 \
        return ::penstock::language::for_each_part<Part>(                      \
            words_a, words_b, [](int a, int b) -> int { return expression; }); \
    }
// Comparisons, which set all bits of a part, or its lowest bit.
#define PENSTOCK_PARTS_COMPARED(name, n, Part, operation)   \
    PENSTOCK_PARTS(__vcmp##name##n, Part, -(a operation b)) \
    PENSTOCK_PARTS(__vset##name##n, Part, a operation b)

// `n` is the number of parts; they have type S where they are signed, U where they are not.
#define PENSTOCK_PARTS_ALL(n, S, U)                                                              \
    PENSTOCK_PARTS_OF_ONE(__vabs##n, S, ::penstock::language::magnitude(a))                      \
    PENSTOCK_PARTS_OF_ONE(__vabsss##n, S,                                                        \
                          ::penstock::language::saturate<S>(::penstock::language::magnitude(a))) \
    PENSTOCK_PARTS_OF_ONE(__vneg##n, S, -a)                                                      \
    PENSTOCK_PARTS_OF_ONE(__vnegss##n, S, ::penstock::language::saturate<S>(-a))                 \
    PENSTOCK_PARTS(__vadd##n, U, a + b)                                                          \
    PENSTOCK_PARTS(__vaddss##n, S, ::penstock::language::saturate<S>(a + b))                     \
    PENSTOCK_PARTS(__vaddus##n, U, ::penstock::language::saturate<U>(a + b))                     \
    PENSTOCK_PARTS(__vsub##n, U, a - b)                                                          \
    PENSTOCK_PARTS(__vsubss##n, S, ::penstock::language::saturate<S>(a - b))                     \
    PENSTOCK_PARTS(__vsubus##n, U, ::penstock::language::saturate<U>(a - b))                     \
    PENSTOCK_PARTS(__vavgs##n, S, (a + b + (a + b >= 0)) >> 1)                                   \
    PENSTOCK_PARTS(__vavgu##n, U, (a + b + 1) >> 1)                                              \
    PENSTOCK_PARTS(__vhaddu##n, U, (a + b) >> 1)                                                 \
    PENSTOCK_PARTS(__vabsdiffs##n, S, ::penstock::language::magnitude(a - b))                    \
    PENSTOCK_PARTS(__vabsdiffu##n, U, ::penstock::language::magnitude(a - b))                    \
    PENSTOCK_PARTS(__vmaxs##n, S, a < b ? b : a)                                                 \
    PENSTOCK_PARTS(__vmaxu##n, U, a < b ? b : a)                                                 \
    PENSTOCK_PARTS(__vmins##n, S, b < a ? b : a)                                                 \
    PENSTOCK_PARTS(__vminu##n, U, b < a ? b : a)                                                 \
    PENSTOCK_PARTS_COMPARED(eq, n, U, ==)                                                        \
    PENSTOCK_PARTS_COMPARED(ne, n, U, !=)                                                        \
    PENSTOCK_PARTS_COMPARED(ges, n, S, >=)                                                       \
    PENSTOCK_PARTS_COMPARED(geu, n, U, >=)                                                       \
    PENSTOCK_PARTS_COMPARED(gts, n, S, >)                                                        \
    PENSTOCK_PARTS_COMPARED(gtu, n, U, >)                                                        \
    PENSTOCK_PARTS_COMPARED(les, n, S, <=)                                                       \
    PENSTOCK_PARTS_COMPARED(leu, n, U, <=)                                                       \
    PENSTOCK_PARTS_COMPARED(lts, n, S, <)                                                        \
    PENSTOCK_PARTS_COMPARED(ltu, n, U, <)                                                        \
    inline unsigned __vsads##n(unsigned a, unsigned b) {                                         \
        return ::penstock::language::sum_of_differences<S>(a, b);                                \
    }                                                                                            \
    inline unsigned __vsadu##n(unsigned a, unsigned b) {                                         \
        return ::penstock::language::sum_of_differences<U>(a, b);                                \
    }
PENSTOCK_PARTS_ALL(2, int16_t, uint16_t)
PENSTOCK_PARTS_ALL(4, int8_t, uint8_t)
#undef PENSTOCK_PARTS_ALL
#undef PENSTOCK_PARTS_COMPARED
#undef PENSTOCK_PARTS
#undef PENSTOCK_PARTS_OF_ONE

// The minimum or maximum of three numbers, or of a sum and a number; _relu: at least 0.
#define PENSTOCK_OF_THREE(T, suffix)                                                        \
    inline T __vimax3_##suffix(T a, T b, T c) { return max(max(a, b), c); }                 \
    inline T __vimin3_##suffix(T a, T b, T c) { return min(min(a, b), c); }                 \
    inline T __viaddmax_##suffix(T a, T b, T c) {                                           \
        return max(static_cast<T>(static_cast<unsigned>(a) + static_cast<unsigned>(b)), c); \
    }                                                                                       \
    inline T __viaddmin_##suffix(T a, T b, T c) {                                           \
        return min(static_cast<T>(static_cast<unsigned>(a) + static_cast<unsigned>(b)), c); \
    }
PENSTOCK_OF_THREE(int, s32)
PENSTOCK_OF_THREE(unsigned, u32)
#undef PENSTOCK_OF_THREE
inline int __vimax_s32_relu(int a, int b) { return max(max(a, b), 0); }
inline int __vimin_s32_relu(int a, int b) { return max(min(a, b), 0); }
inline int __vimax3_s32_relu(int a, int b, int c) { return max(__vimax3_s32(a, b, c), 0); }
inline int __vimin3_s32_relu(int a, int b, int c) { return max(__vimin3_s32(a, b, c), 0); }

#endif  // __NVCC__
