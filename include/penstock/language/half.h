// CUDA's functions on __half and __nv_bfloat16, and on pairs of them: arithmetic, comparisons,
// functions, atomics and the moves within a pair. Conversions are in language/half_conversions.h.
// Sources include <cuda_fp16.h> and <cuda_bf16.h>, which bring both.
//
// Each function is a template over the format. A second or third argument may be of any type that
// converts to it.
#pragma once

#ifndef __NVCC__  // nvcc has the language itself

#include "penstock/language/atomics.h"
#include "penstock/language/cuda.h"
#include "penstock/language/half_format.h"

namespace penstock::language {

template <class Format>
using Same = std::type_identity_t<Reduced<Format>>;
template <class Format>
using SamePair = std::type_identity_t<ReducedPair<Format>>;

template <class Format>
bool is_nan(Reduced<Format> value) {
    return (value.bits & 0x7fff) > Format::kInfinity;
}
// Clamps to 0 to 1; NaN becomes 0.
template <class Format>
Reduced<Format> saturated(Reduced<Format> value) {
    return Reduced<Format>(__saturatef(value));
}

}  // namespace penstock::language

// Defines `name` for numbers and `name2` for pairs, with one, two or three arguments, from an
// expression of their parts a, b and c.
#define PENSTOCK_HALF_1(name, name2, expression)                                            \
    template <class F>                                                                      \
    ::penstock::language::Reduced<F> name(::penstock::language::Reduced<F> a) {             \
        return expression;                                                                  \
    }                                                                                       \
    template <class F>                                                                      \
    ::penstock::language::ReducedPair<F> name2(::penstock::language::ReducedPair<F> pair) { \
        return {name(pair.x), name(pair.y)};                                                \
    }
#define PENSTOCK_HALF_2(name, name2, expression)                                          \
    template <class F>                                                                    \
    ::penstock::language::Reduced<F> name(::penstock::language::Reduced<F> a,             \
                                          ::penstock::language::Same<F> b) {              \
        return expression;                                                                \
    }                                                                                     \
    template <class F>                                                                    \
    ::penstock::language::ReducedPair<F> name2(::penstock::language::ReducedPair<F> one,  \
                                               ::penstock::language::SamePair<F> other) { \
        return {name(one.x, other.x), name(one.y, other.y)};                              \
    }
#define PENSTOCK_HALF_3(name, name2, expression)                                          \
    template <class F>                                                                    \
    ::penstock::language::Reduced<F> name(::penstock::language::Reduced<F> a,             \
                                          ::penstock::language::Same<F> b,                \
                                          ::penstock::language::Same<F> c) {              \
        return expression;                                                                \
    }                                                                                     \
    template <class F>                                                                    \
    ::penstock::language::ReducedPair<F> name2(::penstock::language::ReducedPair<F> one,  \
                                               ::penstock::language::SamePair<F> other,   \
                                               ::penstock::language::SamePair<F> third) { \
        return {name(one.x, other.x, third.x), name(one.y, other.y, third.y)};            \
    }

// ---- arithmetic

PENSTOCK_HALF_2(__hadd, __hadd2, a + b)
PENSTOCK_HALF_2(__hsub, __hsub2, a - b)
PENSTOCK_HALF_2(__hmul, __hmul2, a* b)
PENSTOCK_HALF_2(__hdiv, __h2div, a / b)
PENSTOCK_HALF_2(__hadd_rn, __hadd2_rn, a + b)
PENSTOCK_HALF_2(__hsub_rn, __hsub2_rn, a - b)
PENSTOCK_HALF_2(__hmul_rn, __hmul2_rn, a* b)
PENSTOCK_HALF_2(__hadd_sat, __hadd2_sat, ::penstock::language::saturated(a + b))
PENSTOCK_HALF_2(__hsub_sat, __hsub2_sat, ::penstock::language::saturated(a - b))
PENSTOCK_HALF_2(__hmul_sat, __hmul2_sat, ::penstock::language::saturated(a* b))
PENSTOCK_HALF_1(__hneg, __hneg2, -a)
PENSTOCK_HALF_1(__habs, __habs2, ::penstock::language::Reduced<F>::of_bits(a.bits & 0x7fff))
PENSTOCK_HALF_3(
    __hfma, __hfma2,
    ::penstock::language::Reduced<F>::of_bits(::penstock::language::fused_multiply_add<F>(a, b, c)))
PENSTOCK_HALF_3(__hfma_sat, __hfma2_sat, ::penstock::language::saturated(__hfma(a, b, c)))
PENSTOCK_HALF_3(__hfma_relu, __hfma2_relu, __hmax_nan(__hfma(a, b, c), 0.0f))

// Minimum and maximum. If one argument is NaN, the result is the other; for _nan it is NaN.
PENSTOCK_HALF_2(__hmin, __hmin2, min(static_cast<float>(a), static_cast<float>(b)))
PENSTOCK_HALF_2(__hmax, __hmax2, max(static_cast<float>(a), static_cast<float>(b)))
PENSTOCK_HALF_2(__hmin_nan, __hmin2_nan,
                ::penstock::language::is_nan(a) || ::penstock::language::is_nan(b)
                    ? ::penstock::language::Reduced<F>::of_bits(0x7fff)
                    : __hmin(a, b))
PENSTOCK_HALF_2(__hmax_nan, __hmax2_nan,
                ::penstock::language::is_nan(a) || ::penstock::language::is_nan(b)
                    ? ::penstock::language::Reduced<F>::of_bits(0x7fff)
                    : __hmax(a, b))

// Returns (a.x + i*a.y) * (b.x + i*b.y) + (c.x + i*c.y).
template <class F>
::penstock::language::ReducedPair<F> __hcmadd(::penstock::language::ReducedPair<F> a,
                                              ::penstock::language::SamePair<F> b,
                                              ::penstock::language::SamePair<F> c) {
    return {__hfma(-a.y, b.y, __hfma(a.x, b.x, c.x)), __hfma(a.y, b.x, __hfma(a.x, b.y, c.y))};
}

// ---- functions, calculated in float

PENSTOCK_HALF_1(hsqrt, h2sqrt, std::sqrt(static_cast<float>(a)))
PENSTOCK_HALF_1(hrsqrt, h2rsqrt, rsqrt(static_cast<double>(static_cast<float>(a))))
PENSTOCK_HALF_1(hrcp, h2rcp, 1.0f / static_cast<float>(a))
PENSTOCK_HALF_1(hexp, h2exp, std::exp(static_cast<float>(a)))
PENSTOCK_HALF_1(hexp2, h2exp2, std::exp2(static_cast<float>(a)))
PENSTOCK_HALF_1(hexp10, h2exp10, __exp10f(a))
PENSTOCK_HALF_1(hlog, h2log, std::log(static_cast<float>(a)))
PENSTOCK_HALF_1(hlog2, h2log2, std::log2(static_cast<float>(a)))
PENSTOCK_HALF_1(hlog10, h2log10, std::log10(static_cast<float>(a)))
PENSTOCK_HALF_1(hsin, h2sin, std::sin(static_cast<float>(a)))
PENSTOCK_HALF_1(hcos, h2cos, std::cos(static_cast<float>(a)))
PENSTOCK_HALF_1(htanh, h2tanh, std::tanh(static_cast<float>(a)))
PENSTOCK_HALF_1(hfloor, h2floor, std::floor(static_cast<float>(a)))
PENSTOCK_HALF_1(hceil, h2ceil, std::ceil(static_cast<float>(a)))
PENSTOCK_HALF_1(htrunc, h2trunc, std::trunc(static_cast<float>(a)))
PENSTOCK_HALF_1(hrint, h2rint, std::nearbyint(static_cast<float>(a)))

// ---- comparisons: of pairs into pairs of 1.0 and 0.0, into masks, or whether both hold

// The unordered forms (u) also hold if an argument is NaN.
#define PENSTOCK_HALF_COMPARED(name, expression)                                                \
    template <class F>                                                                          \
    bool __h##name(::penstock::language::Reduced<F> a, ::penstock::language::Same<F> b) {       \
        return expression;                                                                      \
    }                                                                                           \
    template <class F>                                                                          \
    ::penstock::language::ReducedPair<F> __h##name##2(::penstock::language::ReducedPair<F> a,   \
                                                      ::penstock::language::SamePair<F> b) {    \
        return {__h##name(a.x, b.x) ? 1.0f : 0.0f, __h##name(a.y, b.y) ? 1.0f : 0.0f};          \
    }                                                                                           \
    template <class F>                                                                          \
    unsigned __h##name##2_mask(::penstock::language::ReducedPair<F> a,                          \
                               ::penstock::language::SamePair<F> b) {                           \
        return (__h##name(a.x, b.x) ? 0xffffu : 0u) | (__h##name(a.y, b.y) ? 0xffff0000u : 0u); \
    }                                                                                           \
    template <class F>                                                                          \
    bool __hb##name##2(::penstock::language::ReducedPair<F> a,                                  \
                       ::penstock::language::SamePair<F> b) {                                   \
        return __h##name(a.x, b.x) && __h##name(a.y, b.y);                                      \
    }
PENSTOCK_HALF_COMPARED(eq, a == b)
PENSTOCK_HALF_COMPARED(lt, a < b)
PENSTOCK_HALF_COMPARED(le, a <= b)
PENSTOCK_HALF_COMPARED(gt, a > b)
PENSTOCK_HALF_COMPARED(ge, a >= b)
PENSTOCK_HALF_COMPARED(ne, a<b || a> b)
PENSTOCK_HALF_COMPARED(equ, !(a < b || a > b))
PENSTOCK_HALF_COMPARED(ltu, !(a >= b))
PENSTOCK_HALF_COMPARED(leu, !(a > b))
PENSTOCK_HALF_COMPARED(gtu, !(a <= b))
PENSTOCK_HALF_COMPARED(geu, !(a < b))
PENSTOCK_HALF_COMPARED(neu, !(a == b))
#undef PENSTOCK_HALF_COMPARED

template <class F>
bool __hisnan(::penstock::language::Reduced<F> a) {
    return ::penstock::language::is_nan(a);
}
template <class F>
int __hisinf(::penstock::language::Reduced<F> a) {  // 1, -1, or 0
    if ((a.bits & 0x7fff) != F::kInfinity) return 0;
    return (a.bits & 0x8000) != 0 ? -1 : 1;
}
template <class F>
::penstock::language::ReducedPair<F> __hisnan2(::penstock::language::ReducedPair<F> a) {
    return {__hisnan(a.x) ? 1.0f : 0.0f, __hisnan(a.y) ? 1.0f : 0.0f};
}

#undef PENSTOCK_HALF_1
#undef PENSTOCK_HALF_2
#undef PENSTOCK_HALF_3

// ---- moves within a pair

template <class F>
float __low2float(::penstock::language::ReducedPair<F> pair) {
    return pair.x;
}
template <class F>
float __high2float(::penstock::language::ReducedPair<F> pair) {
    return pair.y;
}
template <class F>
::penstock::language::ReducedPair<F> __lowhigh2highlow(::penstock::language::ReducedPair<F> pair) {
    return {pair.y, pair.x};
}

// ---- atomics; the halves of a pair are added one by one

template <class F>
::penstock::language::Reduced<F> atomicAdd(::penstock::language::Reduced<F>* address,
                                           ::penstock::language::Same<F> value) {
    const uint16_t before = ::penstock::language::atomic_update(
        &address->bits, [value](uint16_t seen) {
            return (::penstock::language::Reduced<F>::of_bits(seen) + value).bits;
        });
    return ::penstock::language::Reduced<F>::of_bits(before);
}
template <class F>
::penstock::language::ReducedPair<F> atomicAdd(::penstock::language::ReducedPair<F>* address,
                                               ::penstock::language::SamePair<F> value) {
    const auto low = atomicAdd(&address->x, value.x);
    return {low, atomicAdd(&address->y, value.y)};
}

#endif  // __NVCC__
