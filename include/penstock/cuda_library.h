// What lib<target>_cuda.so offers libpenstock: one table of functions. The library is the half of a
// target's kernels that nvcc compiles.
//
// It is compiled from the same .cu files as the program and contains CUDA's run-time library. It is
// opened together with a CUDA device (docs/design/0002-two-compilers.md). Both compilers read this
// file. Errors are cudaError_t as int; 0 is no error. Every function works on the current context
// of the calling thread. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock {

// One kernel of the library. `stub` is nvcc's host function, by which the run-time library knows
// the kernel.
struct CudaStub {
    const char* key;  // as KernelEntry::key
    const void* stub;
    const CudaStub* next;  // null: the last
};

struct CudaKernelAttributes {
    int registers_per_thread = 0;
    int threads_per_block_max = 0;       // limit by registers
    int code_version = 0;                // architecture of the loaded code, times 10: 90
    size_t static_shared_size = 0;       // bytes for each block
    size_t dynamic_shared_size_max = 0;  // bytes that a launch may request for each block
    size_t local_size = 0;               // bytes for each thread: spills and local arrays
};

inline constexpr uint32_t kCudaLibraryVersion = 1;  // changes with the layout of this table

struct CudaLibrary {
    uint32_t version;
    const CudaStub* first;
    // Loads the kernel's code onto the device and reports what the kernel needs. Permits it as much
    // dynamic shared memory as `shared_size_max` bytes hold beside its static shared memory.
    int (*prepare)(const void* stub, size_t shared_size_max, CudaKernelAttributes* out);
    // Stores in `out` the number of blocks of this shape that one SM holds at once.
    int (*resident_blocks)(const void* stub, int threads, size_t dynamic_shared_size, int* out);
    // Adds a launch to `stream`, a CUstream. `arguments` has one pointer for each parameter; the
    // values are copied before the return.
    int (*launch)(const void* stub, const unsigned grid[3], const unsigned block[3],
                  void** arguments, size_t dynamic_shared_size, void* stream);
    const char* (*error_name)(int error);
    const char* (*error_text)(int error);
};

}  // namespace penstock

// The only exported symbol of the library.
extern "C" const penstock::CudaLibrary* penstock_cuda_library();
