// Dynamic shared memory, with the same macro under both compilers.
#pragma once

#ifdef __NVCC__

// Declares `T* name`: the block's dynamic shared memory, LaunchShape::dynamic_shared_size bytes,
// aligned to 16.
#define PENSTOCK_DYNAMIC_SHARED(T, name)                                     \
    extern __shared__ __align__(16) unsigned char penstock_dynamic_shared[]; \
    T* name = reinterpret_cast<T*>(penstock_dynamic_shared)

#else

#include "penstock/language/runtime.h"

#define PENSTOCK_DYNAMIC_SHARED(T, name) \
    T* name = static_cast<T*>(::penstock::language::current_block->dynamic_shared)

namespace penstock::language {

// Binds a reference to an array of any type to the block's dynamic shared memory.
// cmake/penstock-kernel-source.awk turns `extern __shared__ float s[];` into
//   static thread_local float (&s)[] = DynamicShared();
// In one OS thread it is the same memory for all blocks, and a block is the first to ask for it.
struct DynamicShared {
    template <class T>
    operator T&() const {
        return *static_cast<T*>(current_block->dynamic_shared);
    }
};

}  // namespace penstock::language

#endif
