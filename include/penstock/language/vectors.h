// CUDA's small vector types with their alignments, and dim3.
#pragma once

#ifndef __NVCC__  // nvcc has the language itself

#include "penstock/language/runtime.h"

using uint3 = penstock::language::Index3;

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
    constexpr dim3() = default;
    constexpr dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
constexpr uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }

// Arguments: components, then alignments in bytes of two and four (CUDA aligns three as one).
#define PENSTOCK_VECTORS(name, T, align2, align4)                 \
    struct name##1 {                                              \
        T x;                                                      \
    };                                                            \
    struct alignas(align2) name##2 {                              \
        T x, y;                                                   \
    };                                                            \
    struct alignas(align4) name##4 {                              \
        T x, y, z, w;                                             \
    };                                                            \
    constexpr name##1 make_##name##1(T x) { return {x}; }         \
    constexpr name##2 make_##name##2(T x, T y) { return {x, y}; } \
    constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
#define PENSTOCK_VECTOR3(name, T) \
    struct name##3 {              \
        T x, y, z;                \
    };                            \
    constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }

PENSTOCK_VECTORS(char, signed char, 2, 4)
PENSTOCK_VECTORS(uchar, unsigned char, 2, 4)
PENSTOCK_VECTORS(short, short, 4, 8)
PENSTOCK_VECTORS(ushort, unsigned short, 4, 8)
PENSTOCK_VECTORS(int, int, 8, 16)
PENSTOCK_VECTORS(uint, unsigned, 8, 16)
PENSTOCK_VECTORS(long, long, 16, 16)
PENSTOCK_VECTORS(ulong, unsigned long, 16, 16)
PENSTOCK_VECTORS(longlong, long long, 16, 16)
PENSTOCK_VECTORS(ulonglong, unsigned long long, 16, 16)
PENSTOCK_VECTORS(float, float, 8, 16)
PENSTOCK_VECTORS(double, double, 16, 16)
PENSTOCK_VECTOR3(char, signed char)
PENSTOCK_VECTOR3(uchar, unsigned char)
PENSTOCK_VECTOR3(short, short)
PENSTOCK_VECTOR3(ushort, unsigned short)
PENSTOCK_VECTOR3(int, int)
PENSTOCK_VECTOR3(long, long)
PENSTOCK_VECTOR3(ulong, unsigned long)
PENSTOCK_VECTOR3(longlong, long long)
PENSTOCK_VECTOR3(ulonglong, unsigned long long)
PENSTOCK_VECTOR3(float, float)
PENSTOCK_VECTOR3(double, double)
#undef PENSTOCK_VECTORS
#undef PENSTOCK_VECTOR3

#endif  // __NVCC__
