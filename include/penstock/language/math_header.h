// The C library's mathematics in the global namespace, as in CUDA, but without C++20's std::lerp:
// CUDA sources use that name for functions of their own.
#pragma once

#ifndef __NVCC__  // nvcc has the language itself

#include <cmath>

namespace std {
inline void penstock_stands_for_lerp() {}
}  // namespace std
#define lerp penstock_stands_for_lerp  // <math.h> of libstdc++ says `using std::lerp;`
#include <math.h>
#undef lerp

#endif  // __NVCC__
