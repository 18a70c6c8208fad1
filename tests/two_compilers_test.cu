// Kernels of two_compilers_test.cc: templates, a plain function, shared memory, and every call on
// files.
#include "penstock/device/file.cuh"
#include "penstock/kernel.h"

using penstock::Descriptor;
using penstock::DeviceFileSystem;

template <class T, int kTimes>
__global__ void scale(T* values, T factor) {
    __shared__ T shared[64];
    shared[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    for (int i = 0; i < kTimes; ++i) shared[threadIdx.x] *= factor;
    __syncthreads();
    values[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

__global__ void count_blocks(unsigned* counter) {
    if (threadIdx.x == 0) atomicAdd(counter, 1u);
}

__global__ void use_files(DeviceFileSystem fs, const char* path, std::byte* buffer,
                          int64_t* results) {
    const Descriptor file = penstock::gopen(fs, path, 0);
    penstock::FileStatus status;
    const int64_t told = penstock::gstat(fs, file, &status);
    const int64_t advised = penstock::gadvise(fs, file, 0, 0, penstock::Advice::kRandom);
    const int64_t read = penstock::gread(fs, file, 0, status.size, buffer);
    penstock::View view = penstock::gmmap(fs, file, 0, status.size);
    const int64_t mapped = view.size;
    const int64_t unmapped = penstock::gmunmap(fs, view);
    const int64_t closed = penstock::gclose(fs, file);
    if (threadIdx.x != 0) return;
    const int64_t all[] = {file, told, advised, read, mapped, unmapped, closed};
    for (int i = 0; i < 7; ++i) results[i] = all[i];
}

PENSTOCK_KERNEL(scale<float, 3>)
PENSTOCK_KERNEL(scale<int, 1>)
PENSTOCK_KERNEL(count_blocks)
PENSTOCK_KERNEL(use_files)
