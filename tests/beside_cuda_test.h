// The kernel of beside_cuda_test.cu, for the test.
#pragma once

#include "penstock/device/handle.h"
#include "penstock/kernel.h"

namespace penstock::beside_cuda {

struct VerifyResult {
    unsigned long long words = 0;  // that were compared
    unsigned long long wrong = 0;
    long long error = 0;  // of some read that failed
};

// What the 32-bit word `index` of the file is.
#ifdef __NVCC__
__host__ __device__
#endif
    inline unsigned
    word_of(unsigned long long index) {
    return static_cast<unsigned>(index) * 2654435761u + 17;
}

// Reads the file of `size` bytes `rounds` times; blocks take turns with pieces of `piece` bytes,
// each into a part of `scratch` of its own, and compare every word.
PENSTOCK_GLOBAL void verify_whole(DeviceFileSystem fs, Descriptor file, unsigned long long size,
                                  unsigned piece, unsigned rounds, unsigned* scratch,
                                  VerifyResult* result);

}  // namespace penstock::beside_cuda
