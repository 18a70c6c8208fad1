// The matrix product from files as tests and benchmarks run it: seeded inputs, and its check.
//
// The elements are integers from -8 to 7, so every sum is exact: no order of the operations and no
// fused operation changes a bit. One thread an object.
#pragma once

#include <memory>
#include <vector>

#include "preemption/product_kernels.h"
#include "preemption/workload.h"

namespace penstock::workloads {

struct ProductOptions {
    uint64_t seed = 1;
    ProductForm form = ProductForm::kOneRead;
    unsigned order = 256;  // a multiple of `tile` and of kProductPieces
    unsigned tile = 32;    // 32 or 64; order = 256 gives 64 blocks that read 64 KiB each
    unsigned repeat = 1;   // passes over the panels: sets C. order * repeat is at most 2^18
};

// The run has one kernel. Part::kReads checks the bytes that the reads brought where they lie in
// global memory. Errors: EINVAL for other options than these; ENOMEM; errors of the file.
[[nodiscard]] Result<std::unique_ptr<Workload>> make_product(const Site& site,
                                                             const ProductOptions& options);

// Adds the kernel of a product to `stream` in the form whose blocks sleep between their looks.
// `product` is one of make_product() with one or eight reads.
Status launch_with_backoff(Stream& stream, Workload& product);

// One kernel that does the work of several products and stays until it is done. One thread.
class PersistentProduct {
public:
    // Adds the kernel to `stream`, on `blocks` places. The products are of make_product() with
    // equal options but for the seed, and one or eight reads. The stream must be synchronized
    // before the next call. ENOMEM.
    Status launch(Stream& stream, unsigned blocks, const std::vector<Workload*>& products);

private:
    DeviceArray<ProductJob> jobs_;
    DeviceArray<unsigned long long> next_;
    std::vector<ProductJob> list_;
};

// A * B^T, row-major, with the sums in the order of k. `a` and `b` are row-major.
[[nodiscard]] std::vector<float> product_reference(const std::vector<float>& a,
                                                   const std::vector<float>& b, unsigned order);

}  // namespace penstock::workloads
