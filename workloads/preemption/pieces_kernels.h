// The kernel of blocks that read pieces of a file and compute on each, as host code launches it.
//
// Reads and computation are set apart from each other, so that I, C and the reads of a block in the
// model of seed 001 (section 3) can be chosen freely.
#pragma once

#include <cstdint>

#include "penstock/abi/file_system.h"
#include "penstock/abi/qualifiers.h"
#include "penstock/device.h"
#include "penstock/device/handle.h"

namespace penstock::workloads {

constexpr unsigned kPiecesThreads = 256;  // of a block

// When a block came to a piece, in ns of device::now_ns(), and where it ran.
struct PieceTimes {
    uint64_t begun_ns;     // before the read
    uint64_t got_ns;       // the bytes are there, and the block runs
    uint64_t done_ns;      // the computation has ended
    uint32_t begun_place;  // of the device, when the block began the read
    uint32_t place;        // where it computed
};

// The file has `pieces` pieces of `piece_size` bytes for each block, in the order of blocks.
struct PiecesJob {
    DeviceFileSystem fs;
    Descriptor file = -1;
    unsigned pieces = 1;      // of a block; it reads one, computes, and reads the next
    unsigned piece_size = 0;  // bytes, a multiple of 8 * kPiecesThreads
    unsigned rounds = 0;      // of the computation on one piece, by each GPU thread
    bool reads = true;        // false: the bytes lie in `bytes` already
    bool computes = true;
    unsigned char* bytes = nullptr;          // of all pieces
    unsigned long long* sums = nullptr;      // one for each block; a sum over its threads
    unsigned long long* failures = nullptr;  // += reads that did not bring their bytes
    PieceTimes* times = nullptr;             // of each piece; null: none are recorded
};

// One round of the computation.
constexpr uint64_t kPiecesFactor = 6364136223846793005ull, kPiecesStep = 1442695040888963407ull;
PENSTOCK_BOTH constexpr uint64_t pieces_round(uint64_t x) {
    return x * kPiecesFactor + kPiecesStep;
}

// Adds one launch of `blocks` blocks to the stream.
Status launch_pieces(Stream& stream, unsigned blocks, const PiecesJob& job);

}  // namespace penstock::workloads
