// Dynamic shared memory, by the same word under both compilers.
#pragma once

#ifdef __CUDACC__

// `T* name`: the block's dynamic shared memory, LaunchShape::dynamic_shared_size bytes, aligned to
// 16.
#define PENSTOCK_DYNAMIC_SHARED(T, name)                                     \
    extern __shared__ __align__(16) unsigned char penstock_dynamic_shared[]; \
    T* name = reinterpret_cast<T*>(penstock_dynamic_shared)

#else

#include "penstock/language/runtime.h"

#define PENSTOCK_DYNAMIC_SHARED(T, name) \
    T* name = static_cast<T*>(::penstock::language::current_block->dynamic_shared)

#endif
