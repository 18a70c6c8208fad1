// CUDA's atomic functions, for the types for which CUDA has them; relaxed, as in CUDA.
//
// The _block and _system forms are the same here, because there is one memory and one kind of
// processor. The functions of __half and __nv_bfloat16 are in language/half.h.
#pragma once

#ifndef __NVCC__  // nvcc has the language itself

#include <type_traits>

#include "penstock/language/runtime.h"
#include "penstock/language/vectors.h"

namespace penstock::language {

template <class T, class... Allowed>
concept OneOf = (std::is_same_v<T, Allowed> || ...);
template <class T>
concept AtomicWord = OneOf<T, int, unsigned, unsigned long long>;
// Vectors whose components are added atomically one by one, as on a GPU.
template <class T>
concept AtomicVector = OneOf<T, float2, float4>;
template <class T>
concept AtomicInteger = OneOf<T, int, unsigned, long long, unsigned long long>;
template <class T>
concept AtomicNumber = OneOf<T, int, unsigned, unsigned long long, float, double>;
template <class T>
concept AtomicExchangeable = OneOf<T, int, unsigned, unsigned long long, float>;
template <class T>
concept AtomicComparable = OneOf<T, int, unsigned, unsigned long long, unsigned short>;

// Lets the other lanes of the block run after repeated tries to take a lock, because one of them
// may hold it.
inline void after_try() {
    constexpr unsigned kTriesPerTurn = 64;
    if (current_lane == nullptr || ++current_lane->try_count % kTriesPerTurn != 0) return;
    uint64_t nothing = 0;
    wait_step(&nothing, 0, 0);
}

// Replaces *address by change(*address), and returns the old value.
template <class T, class Change>
T atomic_update(T* address, Change change) {
    T seen;
    __atomic_load(address, &seen, __ATOMIC_RELAXED);
    for (;;) {
        T next = change(seen);
        if (__atomic_compare_exchange(address, &seen, &next, true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
            return seen;
        }
    }
}

}  // namespace penstock::language

template <penstock::language::AtomicNumber T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
    if constexpr (std::is_integral_v<T>) {
        return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
    } else {
        return penstock::language::atomic_update(address, [value](T seen) { return seen + value; });
    }
}

template <penstock::language::AtomicVector T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
    T before{};
    before.x = atomicAdd(&address->x, value.x);
    before.y = atomicAdd(&address->y, value.y);
    if constexpr (sizeof(T) == sizeof(float4)) {
        before.z = atomicAdd(&address->z, value.z);
        before.w = atomicAdd(&address->w, value.w);
    }
    return before;
}

template <penstock::language::OneOf<int, unsigned> T>
T atomicSub(T* address, std::type_identity_t<T> value) {
    return __atomic_fetch_sub(address, value, __ATOMIC_RELAXED);
}

template <penstock::language::AtomicExchangeable T>
T atomicExch(T* address, std::type_identity_t<T> value) {
    T before;
    __atomic_exchange(address, &value, &before, __ATOMIC_RELAXED);
    penstock::language::after_try();
    return before;
}

template <penstock::language::AtomicComparable T>
T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
    bool done = __atomic_compare_exchange_n(address, &compare, value, false, __ATOMIC_RELAXED,
                                            __ATOMIC_RELAXED);
    if (!done) penstock::language::after_try();
    return compare;
}

template <penstock::language::AtomicInteger T>
T atomicMin(T* address, std::type_identity_t<T> value) {
    return penstock::language::atomic_update(
        address, [value](T seen) { return value < seen ? value : seen; });
}

template <penstock::language::AtomicInteger T>
T atomicMax(T* address, std::type_identity_t<T> value) {
    return penstock::language::atomic_update(
        address, [value](T seen) { return seen < value ? value : seen; });
}

template <penstock::language::AtomicWord T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
    return __atomic_fetch_and(address, value, __ATOMIC_RELAXED);
}

template <penstock::language::AtomicWord T>
T atomicOr(T* address, std::type_identity_t<T> value) {
    return __atomic_fetch_or(address, value, __ATOMIC_RELAXED);
}

template <penstock::language::AtomicWord T>
T atomicXor(T* address, std::type_identity_t<T> value) {
    return __atomic_fetch_xor(address, value, __ATOMIC_RELAXED);
}

inline unsigned atomicInc(unsigned* address, unsigned limit) {
    return penstock::language::atomic_update(
        address, [limit](unsigned seen) { return seen >= limit ? 0 : seen + 1; });
}

inline unsigned atomicDec(unsigned* address, unsigned limit) {
    return penstock::language::atomic_update(
        address, [limit](unsigned seen) { return seen == 0 || seen > limit ? limit : seen - 1; });
}

#define PENSTOCK_ATOMIC_SCOPES(name)                   \
    template <class T, class... Values>                \
    auto name##_block(T* address, Values... values) {  \
        return name(address, values...);               \
    }                                                  \
    template <class T, class... Values>                \
    auto name##_system(T* address, Values... values) { \
        return name(address, values...);               \
    }
PENSTOCK_ATOMIC_SCOPES(atomicAdd)
PENSTOCK_ATOMIC_SCOPES(atomicSub)
PENSTOCK_ATOMIC_SCOPES(atomicExch)
PENSTOCK_ATOMIC_SCOPES(atomicCAS)
PENSTOCK_ATOMIC_SCOPES(atomicMin)
PENSTOCK_ATOMIC_SCOPES(atomicMax)
PENSTOCK_ATOMIC_SCOPES(atomicAnd)
PENSTOCK_ATOMIC_SCOPES(atomicOr)
PENSTOCK_ATOMIC_SCOPES(atomicXor)
PENSTOCK_ATOMIC_SCOPES(atomicInc)
PENSTOCK_ATOMIC_SCOPES(atomicDec)
#undef PENSTOCK_ATOMIC_SCOPES

#if defined(__SANITIZE_THREAD__)
// TSan does not model fences. A read-modify-write of one word orders at least as much.
inline void __threadfence() {
    static unsigned fence_word = 0;
    __atomic_fetch_add(&fence_word, 0, __ATOMIC_SEQ_CST);
}
#else
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#endif
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }

#endif  // __NVCC__
