// The door of every lib<target>_cuda.so: the calls of libpenstock to CUDA's run-time library, which
// is linked into it.
//
// Host code only. penstock_add_kernels() compiles it beside the target's kernels.
// include/penstock/cuda_library.h says what each function does.
#include <cuda_runtime_api.h>

#include "penstock/cuda_library.h"
#include "penstock/kernel.h"

namespace {

// Clears the thread's last error: an error that no kernel caused must not show in its next call.
int cleared(cudaError_t error) {
    if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
    return error;
}

int prepare(const void* stub, size_t shared_size_max, penstock::CudaKernelAttributes* out) {
    cudaFuncAttributes found{};
    if (const auto error = cudaFuncGetAttributes(&found, stub); error != cudaSuccess)
        return cleared(error);
    const size_t dynamic = shared_size_max > found.sharedSizeBytes
                               ? shared_size_max - found.sharedSizeBytes
                               : 0;
    if (dynamic > static_cast<size_t>(found.maxDynamicSharedSizeBytes)) {
        const auto error = cudaFuncSetAttribute(stub, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                static_cast<int>(dynamic));
        if (error != cudaSuccess) return cleared(error);
    }
    out->registers_per_thread = found.numRegs;
    out->threads_per_block_max = found.maxThreadsPerBlock;
    out->code_version = found.binaryVersion;
    out->static_shared_size = found.sharedSizeBytes;
    out->dynamic_shared_size_max = dynamic;
    out->local_size = found.localSizeBytes;
    return cudaSuccess;
}

int resident_blocks(const void* stub, int threads, size_t dynamic_shared_size, int* out) {
    return cleared(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(out, stub, threads, dynamic_shared_size));
}

int launch(const void* stub, const unsigned grid[3], const unsigned block[3], void** arguments,
           size_t dynamic_shared_size, void* stream) {
    return cleared(cudaLaunchKernel(stub, dim3(grid[0], grid[1], grid[2]),
                                    dim3(block[0], block[1], block[2]), arguments,
                                    dynamic_shared_size, static_cast<cudaStream_t>(stream)));
}

const char* error_name(int error) { return cudaGetErrorName(static_cast<cudaError_t>(error)); }
const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

}  // namespace

extern "C" __attribute__((visibility("default"))) const penstock::CudaLibrary*
penstock_cuda_library() {
    static const penstock::CudaLibrary library{penstock::kCudaLibraryVersion,
                                               penstock::CudaStubRegistration::first,
                                               prepare,
                                               resident_blocks,
                                               launch,
                                               error_name,
                                               error_text};
    return &library;
}
