// The CUDA language for g++ and Clang's C++. Included before a .cu file, it makes kernels run on
// the CPU backend. Under nvcc, which has the language, it adds only PENSTOCK_DYNAMIC_SHARED.
//
// docs/guide/cuda-language.md lists what is there and what differs. Sources find CUDA's own headers
// by their names in language/toolkit, which penstock_add_kernels() gives to g++ alone.
//
// Only kernels and the functions they call use it; host code does not need it. Every function that
// synchronizes with other threads of the block uses language/runtime.h. Device code and host code
// are one: __device__ and __host__ mean nothing, and penstock::launch starts __global__ functions.
// Three things differ from a GPU. The threads of a warp never run in step (CUDA has allowed that
// since Volta). A thread that spins on plain memory keeps the others of its block from running, but
// atomicCAS and atomicExch let them run. __activemask() is the calling thread alone.
#pragma once

#include "penstock/language/shared.h"

#ifndef __NVCC__

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "penstock/language/atomics.h"
#include "penstock/language/integers.h"
#include "penstock/language/intrinsics.h"
#include "penstock/language/math_header.h"
#include "penstock/language/mathematics.h"
#include "penstock/language/packed.h"
#include "penstock/language/rounding.h"
#include "penstock/language/runtime.h"
#include "penstock/language/vectors.h"
#include "penstock/language/warp.h"

#define PENSTOCK_CPU_LANGUAGE 1

#ifdef PENSTOCK_COMPILER_TOOL
// `penstock preempt` finds kernels and shared variables by these. To it, a shared variable is a
// local one.
#define __global__ __attribute__((annotate("penstock_global")))
#define __device__ __attribute__((annotate("penstock_device")))
#define __shared__ __attribute__((annotate("penstock_shared")))
#else
#define __global__
#define __device__
// A block runs to its end on one OS thread, so its shared memory can belong to that thread. The ABI
// tag lets the backend find these variables, to poison them at every start of a block
// (src/backend/cpu/shared_memory.h).
#define __shared__ static thread_local __attribute__((abi_tag("penstock_shared")))
#endif
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
// Expands to nothing, because libstdc++ uses __attribute__((__noinline__)).
#define __noinline__
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...)

#define threadIdx (::penstock::language::current_lane->thread_index)
#define blockIdx (::penstock::language::current_block->block_index)
#define blockDim (::penstock::language::current_block->block_dimensions)
#define gridDim (::penstock::language::current_block->grid_dimensions)

inline constexpr int warpSize = 32;

#define PENSTOCK_TEXT_OF_(x) #x
#define PENSTOCK_TEXT_OF(x) PENSTOCK_TEXT_OF_(x)
// Names a barrier: "file:line: kind". The kind is one word (language/runtime.h).
#define PENSTOCK_SITE(kind) __FILE__ ":" PENSTOCK_TEXT_OF(__LINE__) ": " kind

#define __syncthreads() \
    ::penstock::language::block_rendezvous(nullptr, nullptr, PENSTOCK_SITE("__syncthreads"))
#define __syncthreads_count(predicate) \
    ::penstock::language::block_count((predicate) != 0, PENSTOCK_SITE("__syncthreads_count"))
#define __syncthreads_and(predicate)                                     \
    static_cast<int>(::penstock::language::block_count((predicate) == 0, \
                                                       PENSTOCK_SITE("__syncthreads_and")) == 0)
#define __syncthreads_or(predicate)                                      \
    static_cast<int>(::penstock::language::block_count((predicate) != 0, \
                                                       PENSTOCK_SITE("__syncthreads_or")) != 0)
#define __syncwarp(...) \
    ::penstock::language::sync_warp(PENSTOCK_SITE("__syncwarp") __VA_OPT__(, ) __VA_ARGS__)

#define __shfl_sync(mask, ...) \
    ::penstock::language::shuffle(PENSTOCK_SITE("__shfl_sync"), mask, __VA_ARGS__)
#define __shfl_up_sync(mask, ...) \
    ::penstock::language::shuffle_up(PENSTOCK_SITE("__shfl_up_sync"), mask, __VA_ARGS__)
#define __shfl_down_sync(mask, ...) \
    ::penstock::language::shuffle_down(PENSTOCK_SITE("__shfl_down_sync"), mask, __VA_ARGS__)
#define __shfl_xor_sync(mask, ...) \
    ::penstock::language::shuffle_xor(PENSTOCK_SITE("__shfl_xor_sync"), mask, __VA_ARGS__)
#define __ballot_sync(mask, predicate) \
    ::penstock::language::ballot(PENSTOCK_SITE("__ballot_sync"), mask, (predicate) != 0)
#define __any_sync(mask, predicate) \
    static_cast<int>(               \
        ::penstock::language::ballot(PENSTOCK_SITE("__any_sync"), mask, (predicate) != 0) != 0)
#define __all_sync(mask, predicate) \
    static_cast<int>(               \
        ::penstock::language::ballot(PENSTOCK_SITE("__all_sync"), mask, (predicate) == 0) == 0)
#define __match_all_sync(mask, value, predicate) \
    ::penstock::language::match_all(PENSTOCK_SITE("__match_all_sync"), mask, value, predicate)
#define __match_any_sync(mask, value) \
    ::penstock::language::match_any(PENSTOCK_SITE("__match_any_sync"), mask, value)
#define __reduce_add_sync(mask, value) \
    ::penstock::language::reduce_add(PENSTOCK_SITE("__reduce_add_sync"), mask, value)
#define __reduce_min_sync(mask, value) \
    ::penstock::language::reduce_min(PENSTOCK_SITE("__reduce_min_sync"), mask, value)
#define __reduce_max_sync(mask, value) \
    ::penstock::language::reduce_max(PENSTOCK_SITE("__reduce_max_sync"), mask, value)
#define __reduce_and_sync(mask, value) \
    ::penstock::language::reduce_and(PENSTOCK_SITE("__reduce_and_sync"), mask, value)
#define __reduce_or_sync(mask, value) \
    ::penstock::language::reduce_or(PENSTOCK_SITE("__reduce_or_sync"), mask, value)
#define __reduce_xor_sync(mask, value) \
    ::penstock::language::reduce_xor(PENSTOCK_SITE("__reduce_xor_sync"), mask, value)

// Ends the block; its launch fails with EFAULT.
#define __trap() \
    ::penstock::language::stop_block("__trap at " __FILE__ ":" PENSTOCK_TEXT_OF(__LINE__))

// CUDA sources test this macro to tell CUDA from plain C++. Penstock's own sources test __NVCC__.
#ifndef __CUDACC__
#define __CUDACC__ 1
#endif

#endif  // __NVCC__
