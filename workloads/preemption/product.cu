// The product of two matrices that are read from a file inside the kernel: A * B^T.
//
// The I/O-intensive workload of seed 001, section 6.2. A block computes one tile of the result; a
// GPU thread computes four by four elements of it. Every read is a point where the block may
// leave: with one read nothing but the block's place is live there, with eight the sums are.
#include "penstock/device/file.cuh"
#include "penstock/kernel.h"
#include "penstock/preemption.h"
#include "preemption/product_tile.cuh"

namespace penstock::workloads {
namespace {

template <int kTile>
__global__ void product_one_read(ProductJob job) {
    const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
    const uint64_t count = uint64_t{job.order} * 2 * kTile;
    float* panels = job.panels + block * count;
    if (job.reads) {
        const uint64_t size = count * sizeof(float);
#pragma preempt
        const int64_t got = gread(job.fs, job.file, static_cast<int64_t>(block * size), size,
                                  panels);
        count_failure(job, got, size);
    }
    Sums sums{};
    for (unsigned pass = 0; pass < job.repeat; ++pass)
        sums = multiply<kTile>(panels, job.order, sums);
    store<kTile>(job, blockIdx.y, blockIdx.x, sums);
}

template <int kTile>
__global__ void product_eight_reads(ProductJob job) {
    const unsigned depth = job.order / kProductPieces;
    const uint64_t piece_count = uint64_t{depth} * 2 * kTile;
    const uint64_t piece_size = piece_count * sizeof(float);
    const uint64_t first = (uint64_t{blockIdx.y} * gridDim.x + blockIdx.x) * kProductPieces;
    Sums sums{};
    for (unsigned piece = 0; piece < kProductPieces; ++piece) {
        float* panels = job.panels + (first + piece) * piece_count;
        if (job.reads) {
            int64_t got = 0;
#pragma preempt
            got = gread(job.fs, job.file, static_cast<int64_t>((first + piece) * piece_size),
                        piece_size, panels);
            count_failure(job, got, piece_size);
        }
        for (unsigned pass = 0; pass < job.repeat; ++pass)
            sums = multiply<kTile>(panels, depth, sums);
    }
    store<kTile>(job, blockIdx.y, blockIdx.x, sums);
}

// One piece of the record lies in dynamic shared memory. Where nothing is read, it is copied there.
template <int kTile>
__global__ void product_eight_reads_shared(ProductJob job) {
    extern __shared__ float4 shared_panels[];
    const auto* panels = reinterpret_cast<const float*>(shared_panels);
    const unsigned depth = job.order / kProductPieces;
    const uint64_t piece_size = uint64_t{depth} * 2 * kTile * sizeof(float);
    const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
    Sums sums{};
    for (unsigned piece = 0; piece < kProductPieces; ++piece) {
        const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
        const uint64_t offset = (uint64_t{block} * kProductPieces + piece) * piece_size;
        __syncthreads();  // all threads have used the piece before
        if (job.reads) {
#pragma preempt
            const auto got = static_cast<int64_t>(
                gread(job.fs, job.file, static_cast<int64_t>(offset), piece_size, shared_panels));
            count_failure(job, got, piece_size);
        } else {
            const auto* from = reinterpret_cast<const float4*>(job.panels) +
                               offset / sizeof(float4);
            for (unsigned i = thread; i < piece_size / sizeof(float4); i += kTile * kTile / 16)
                shared_panels[i] = from[i];
            __syncthreads();
        }
        for (unsigned pass = 0; pass < job.repeat; ++pass)
            sums = multiply<kTile>(panels, depth, sums);
    }
    store<kTile>(job, blockIdx.y, blockIdx.x, sums);
}

}  // namespace

PENSTOCK_KERNEL(product_one_read<32>)
PENSTOCK_KERNEL(product_one_read<64>)
PENSTOCK_KERNEL(product_eight_reads<32>)
PENSTOCK_KERNEL(product_eight_reads<64>)
PENSTOCK_KERNEL(product_eight_reads_shared<32>)
PENSTOCK_KERNEL(product_eight_reads_shared<64>)

#ifndef __NVCC__
namespace {

template <int kTile>
Status launch_tiles(Stream& stream, ProductForm form, const ProductJob& job) {
    const unsigned tiles = job.order / kTile;
    LaunchShape shape{{tiles, tiles}, {kTile / 4, kTile / 4}};
    if (form == ProductForm::kOneRead) return launch(stream, shape, product_one_read<kTile>, job);
    if (form == ProductForm::kEightReads)
        return launch(stream, shape, product_eight_reads<kTile>, job);
    shape.dynamic_shared_size = job.order / kProductPieces * 2 * kTile * sizeof(float);
    return launch(stream, shape, product_eight_reads_shared<kTile>, job);
}

}  // namespace

Status launch_product(Stream& stream, ProductForm form, unsigned tile, const ProductJob& job) {
    return tile == 32 ? launch_tiles<32>(stream, form, job) : launch_tiles<64>(stream, form, job);
}

bool product_is_preemptible() {
    return find_preemptible(reinterpret_cast<const void*>(&product_one_read<32>)) != nullptr;
}
#endif

}  // namespace penstock::workloads
