// The kernels of the preempt benchmark that are not workloads.
#include "bench/harness/walks.cuh"
#include "bench/preempt/announce.h"
#include "penstock/kernel.h"

namespace penstock::bench {

__global__ void announce_reads(DeviceFileSystem fs, Descriptor file, uint64_t size) {
    const uint64_t begin = size * blockIdx.x / gridDim.x, end = size * (blockIdx.x + 1) / gridDim.x;
    (void)gadvise(fs, file, static_cast<int64_t>(begin), end - begin, Advice::kWillNeed);
}

}  // namespace penstock::bench

PENSTOCK_KERNEL(penstock::bench::forget_file)
PENSTOCK_KERNEL(penstock::bench::announce_reads)
