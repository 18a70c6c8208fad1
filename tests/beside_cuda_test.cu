// The kernel of beside_cuda_test.cc.
#include "penstock/device/file.cuh"
#include "tests/beside_cuda_test.h"

namespace penstock::beside_cuda {

__global__ void verify_whole(DeviceFileSystem fs, Descriptor file, unsigned long long size,
                             unsigned piece, unsigned rounds, unsigned* scratch,
                             VerifyResult* result) {
    unsigned* const mine = scratch + size_t{blockIdx.x} * (piece / sizeof(unsigned));
    unsigned long long words = 0, wrong = 0;
    for (unsigned round = 0; round < rounds; ++round) {
        for (unsigned long long at = size_t{blockIdx.x} * piece; at < size;
             at += size_t{gridDim.x} * piece) {
            const int64_t count = gread(fs, file, static_cast<int64_t>(at), piece, mine);
            if (count < 0) {
                if (threadIdx.x == 0) result->error = count;
                return;
            }
            for (unsigned i = threadIdx.x; i < count / sizeof(unsigned); i += blockDim.x) {
                ++words;
                if (mine[i] != word_of(at / sizeof(unsigned) + i)) ++wrong;
            }
            __syncthreads();
        }
    }
    atomicAdd(&result->words, words);
    atomicAdd(&result->wrong, wrong);
}

PENSTOCK_KERNEL(verify_whole)

}  // namespace penstock::beside_cuda
