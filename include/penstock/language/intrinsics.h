// CUDA's functions other than arithmetic: loads and stores with a hint, clocks, hints to the
// compiler.
#pragma once

#ifndef __NVCC__  // nvcc has the language itself

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "penstock/language/runtime.h"

// Loads and stores whose hint says how long the value is useful. Here they are plain.
#define PENSTOCK_HINTED_LOAD(name) \
    template <class T>             \
    T name(const T* address) {     \
        return *address;           \
    }
PENSTOCK_HINTED_LOAD(__ldg)
PENSTOCK_HINTED_LOAD(__ldca)
PENSTOCK_HINTED_LOAD(__ldcg)
PENSTOCK_HINTED_LOAD(__ldcs)
PENSTOCK_HINTED_LOAD(__ldcv)
PENSTOCK_HINTED_LOAD(__ldlu)
#undef PENSTOCK_HINTED_LOAD
#define PENSTOCK_HINTED_STORE(name)                        \
    template <class T>                                     \
    void name(T* address, std::type_identity_t<T> value) { \
        *address = value;                                  \
    }
PENSTOCK_HINTED_STORE(__stcg)
PENSTOCK_HINTED_STORE(__stcs)
PENSTOCK_HINTED_STORE(__stwb)
PENSTOCK_HINTED_STORE(__stwt)
#undef PENSTOCK_HINTED_STORE

// Returns cycles of a steady clock; only differences have a meaning.
inline long long clock64() {
#if defined(__x86_64__)
    return static_cast<long long>(__builtin_ia32_rdtsc());
#else
    return static_cast<long long>(penstock::language::clock_ns());
#endif
}
// clock() is missing here: the C library has that name, with its own units.

// Lets other lanes run for about that time, but at most 20 us, because it is only a hint.
inline void __nanosleep(unsigned ns) {
    constexpr unsigned kLongest = 20000;
    uint64_t start = penstock::language::clock_ns();
    uint64_t nothing = 0;
    do {
        penstock::language::wait_step(&nothing, 0, 0);
    } while (penstock::language::clock_ns() - start < (ns < kLongest ? ns : kLongest));
}

// Hints to the compiler are ignored.
#define __assume(condition) static_cast<void>(0)
#ifndef __clang__
#define __builtin_assume(condition) static_cast<void>(0)
#endif

// There is only one memory here.
inline unsigned __isGlobal(const void* address) { return address != nullptr ? 1 : 0; }

#endif  // __NVCC__
