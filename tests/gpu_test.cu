#include "gpu_test.h"

#include "penstock/device/file.cuh"

namespace penstock::gpu_test {

__device__ void read_pieces(DeviceFileSystem fs, Descriptor file, uint64_t piece, std::byte* out,
                            ReadResult* result) {
    FileStatus status;
    if (gstat(fs, file, &status) != 0) return;
    for (uint64_t offset = blockIdx.x * piece; offset < status.size; offset += gridDim.x * piece) {
        const int64_t count = gread(fs, file, static_cast<int64_t>(offset), piece, out + offset);
        if (threadIdx.x != 0) continue;
        if (count < 0) {
            atomicExch(&result->failed, static_cast<unsigned long long>(-count));
        } else {
            atomicAdd(&result->bytes, static_cast<unsigned long long>(count));
        }
    }
}

__global__ void read_whole(DeviceFileSystem fs, Descriptor file, uint64_t piece, std::byte* out,
                           ReadResult* result) {
    read_pieces(fs, file, piece, out, result);
}

__global__ void __launch_bounds__(1024, 1)
    read_whole_by_large_blocks(DeviceFileSystem fs, Descriptor file, uint64_t piece, std::byte* out,
                               ReadResult* result) {
    read_pieces(fs, file, piece, out, result);
}

__global__ void open_and_compare(DeviceFileSystem fs, const char* path, int64_t* result) {
    __shared__ std::byte copy[256];
    __shared__ unsigned differences;
    const Descriptor file = gopen(fs, path, 0);
    FileStatus status;
    int64_t wrong = file < 0 ? file : gstat(fs, file, &status);
    if (threadIdx.x == 0) differences = 0;
    const int64_t offset = 1000 * static_cast<int64_t>(blockIdx.x) + 13;
    const int64_t count = wrong < 0 ? 0 : gread(fs, file, offset, sizeof copy, copy);
    View view;
    if (wrong == 0) view = gmmap(fs, file, offset, sizeof copy);
    __syncthreads();
    for (int64_t i = threadIdx.x; i < view.size && i < count; i += blockDim.x) {
        if (view.data[i] != copy[i]) atomicAdd(&differences, 1u);
    }
    __syncthreads();
    if (wrong == 0 && view.size > 0) wrong = gmunmap(fs, view);
    if (file >= 0 && gclose(fs, file) != 0) wrong = -1;
    if (wrong == 0 && (differences != 0 || count != sizeof copy)) wrong = -2;
    if (threadIdx.x == 0) result[blockIdx.x] = wrong;
}

__global__ void use_shared_and_stack(unsigned* values, unsigned count) {
    PENSTOCK_DYNAMIC_SHARED(unsigned, shared);
    unsigned stack[64];  // indexed at run time: on a GPU it lies in local memory
    for (unsigned i = 0; i < 64; ++i) stack[i] = i + blockIdx.x;
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x) shared[i] = stack[(i * 7) % 64];
    __syncthreads();
    unsigned sum = 0;
    for (unsigned i = 0; i < count; ++i) sum += shared[i];
    if (threadIdx.x == 0) values[blockIdx.x] = sum;
}

__global__ void wait_for_word(const uint64_t* word, uint64_t told) {
    while (device::SystemWords::load(*word, site::kCompletion) != told) __nanosleep(1000);
}

__global__ void store_nowhere(unsigned* address) { *address = 1; }

PENSTOCK_KERNEL(read_whole)
PENSTOCK_KERNEL(read_whole_by_large_blocks)
PENSTOCK_KERNEL(open_and_compare)
PENSTOCK_KERNEL(use_shared_and_stack)
PENSTOCK_KERNEL(wait_for_word)
PENSTOCK_KERNEL(store_nowhere)

}  // namespace penstock::gpu_test
