// Counts the lines of a file: blocks take pieces of it in turn, each read with one gread.
#include "count_lines.h"

#include "penstock/device/file.cuh"
#include "penstock/kernel.h"

constexpr unsigned kPieceSize = 16 << 10;  // bytes of shared memory

__global__ void count_lines(penstock::DeviceFileSystem files, penstock::Descriptor file,
                            unsigned long long* lines, long long* error) {
    __shared__ char piece[kPieceSize];
    unsigned long long found = 0;
    for (int64_t offset = int64_t{blockIdx.x} * kPieceSize;;
         offset += int64_t{gridDim.x} * kPieceSize) {
        const int64_t size = penstock::gread(files, file, offset, kPieceSize, piece);
        if (size < 0) *error = size;
        if (size <= 0) break;  // the same in all threads of the block
        for (int64_t i = threadIdx.x; i < size; i += blockDim.x) found += piece[i] == '\n';
        __syncthreads();  // before the next gread writes into the piece
    }
    atomicAdd(lines, found);
}

PENSTOCK_KERNEL(count_lines)
