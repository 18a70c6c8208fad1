// What lib<target>_cuda.so, the nvcc half of a target's kernels, offers libpenstock: one table of
// functions.
//
// The library is compiled from the same .cu files as the program, with CUDA's run-time library
// inside; it is opened when a CUDA device is (docs/design/0002-two-compilers.md). Both compilers
// read this file. Errors are cudaError_t as int, 0 for none. Every function works on the thread's
// current context; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock {

// One kernel of the library. `stub` is nvcc's host function, which the run-time library knows it
// by.
struct CudaStub {
    const char* key;  // as KernelEntry::key
    const void* stub;
    const CudaStub* next;  // null: the last
};

struct CudaKernelAttributes {
    int registers_per_thread = 0;
    int threads_per_block_max = 0;       // what registers allow
    int code_version = 0;                // architecture of the loaded code, times 10: 90
    size_t static_shared_size = 0;       // bytes a block
    size_t dynamic_shared_size_max = 0;  // bytes a block may ask for at launch
    size_t local_size = 0;               // bytes a thread, spills and local arrays
};

inline constexpr uint32_t kCudaLibraryVersion = 1;  // changes with the layout of this table

struct CudaLibrary {
    uint32_t version;
    const CudaStub* first;
    // Loads the kernel's code onto the device, lets it ask for as much dynamic shared memory as
    // fits into `shared_size_max` bytes beside its static, and reports what it needs.
    int (*prepare)(const void* stub, size_t shared_size_max, CudaKernelAttributes* out);
    // Blocks of this shape that one SM holds at once.
    int (*resident_blocks)(const void* stub, int threads, size_t dynamic_shared_size, int* out);
    // Puts a launch into `stream` (a CUstream). `arguments`: one pointer a parameter; copied before
    // the return.
    int (*launch)(const void* stub, const unsigned grid[3], const unsigned block[3],
                  void** arguments, size_t dynamic_shared_size, void* stream);
    const char* (*error_name)(int error);
    const char* (*error_text)(int error);
};

}  // namespace penstock

// The library's one exported symbol.
extern "C" const penstock::CudaLibrary* penstock_cuda_library();
