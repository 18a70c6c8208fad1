// The kernels of the matrix product, as host code launches them, and the layout of its file.
//
// The file has a record for each tile of the result, in the order of blocks: row-major over tiles.
// The record of tile (i, j) is `order` rows of 2 * tile floats. Row k holds element k of `tile`
// rows of A, those of tile row i, then element k of `tile` rows of B, those of tile column j. So
// one read fetches what a block needs, and k in pieces is the record in pieces.
#pragma once

#include <cstdint>

#include "penstock/abi/file_system.h"
#include "penstock/device.h"
#include "penstock/device/handle.h"

namespace penstock::workloads {

// Pieces of a record that the forms with eight reads take one after another.
constexpr unsigned kProductPieces = 8;

struct ProductJob {
    DeviceFileSystem fs;
    Descriptor file = -1;
    unsigned order = 0;   // of A, B and the result; a multiple of the tile and of kProductPieces
    unsigned repeat = 1;  // passes over a block's panels, each added to the sum; 0: reads only
    bool reads = true;    // false: the panels lie in `panels` already
    float* panels = nullptr;                 // a record for each block
    float* result = nullptr;                 // order * order floats, row-major
    unsigned long long* failures = nullptr;  // += reads that did not bring their bytes
};

enum class ProductForm : uint8_t {
    kOneRead,           // the whole record into `panels`
    kEightReads,        // a piece into `panels`, then its part of the sum, then the next piece
    kEightReadsShared,  // the same through shared memory that holds one piece
};

// Reads of a block.
constexpr unsigned pieces_of(ProductForm form) {
    return form == ProductForm::kOneRead ? 1 : kProductPieces;
}

// Adds one launch to the stream: (order / tile)^2 blocks of (tile / 4)^2 GPU threads. `tile` is 32
// or 64.
Status launch_product(Stream& stream, ProductForm form, unsigned tile, const ProductJob& job);
// The same for kOneRead and kEightReads, by blocks that look for their bytes themselves and sleep
// between the looks, each time twice as long, up to 1 ms.
Status launch_product_with_backoff(Stream& stream, ProductForm form, unsigned tile,
                                   const ProductJob& job);
// The same for all of `jobs`, in device memory, by `blocks` blocks that stay. They take tiles from
// a queue whose head, `*next` in device memory, is 0 at first. Each has four reads ahead.
Status launch_persistent_product(Stream& stream, unsigned blocks, ProductForm form, unsigned tile,
                                 const ProductJob* jobs, unsigned job_count,
                                 unsigned long long* next);
// Whether `penstock preempt` has seen the kernels of the products, so that blocks may leave.
[[nodiscard]] bool product_is_preemptible();

}  // namespace penstock::workloads
