// Dynamic shared memory, by the same word under both compilers.
#pragma once

#ifdef __NVCC__

// `T* name`: the block's dynamic shared memory, LaunchShape::dynamic_shared_size bytes, aligned to
// 16.
#define PENSTOCK_DYNAMIC_SHARED(T, name)                                     \
    extern __shared__ __align__(16) unsigned char penstock_dynamic_shared[]; \
    T* name = reinterpret_cast<T*>(penstock_dynamic_shared)

#else

#include "penstock/language/runtime.h"

#define PENSTOCK_DYNAMIC_SHARED(T, name) \
    T* name = static_cast<T*>(::penstock::language::current_block->dynamic_shared)

namespace penstock::language {

// Binds a reference to an array of any type to the block's dynamic shared memory:
//   static thread_local float (&s)[] = DynamicShared();
// is what `extern __shared__ float s[];` becomes (cmake/penstock-kernel-source.awk). Of one thread
// it is the same memory for all blocks, and is asked for in a block first.
struct DynamicShared {
    template <class T>
    operator T&() const {
        return *static_cast<T*>(current_block->dynamic_shared);
    }
};

}  // namespace penstock::language

#endif
