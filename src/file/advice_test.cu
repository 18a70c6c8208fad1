// Kernels of the tests of advice: see advice_test.h.
#include "file/advice_test.h"

#include "penstock/device/file.cuh"

namespace penstock::file_test {

__global__ void advise(AdviceJob job, Advice advice) {
    const int result = gadvise(job.fs, job.file, job.offset, job.size, advice);
    if (threadIdx.x == 0) *job.result = result;
}

__global__ void advise_by_warps(AdviceJob job, Advice advice) {
    const int result = gadvise(job.fs, job.file, job.offset, job.size, advice, device::OneWarp());
    if (threadIdx.x == 0) *job.result = result;
}

__global__ void read_steps(AdviceJob job, int64_t step, uint64_t count) {
    int64_t sum = 0;
    for (uint64_t i = 0; i < count; ++i) {
        const int64_t at = job.offset + static_cast<int64_t>(i) * step;
        const int64_t got = gread(job.fs, job.file, at, job.size, job.buffer);
        if (got < 0) sum = got;
        if (sum >= 0) sum += got;
    }
    if (threadIdx.x == 0) *job.result = sum;
}

}  // namespace penstock::file_test

PENSTOCK_KERNEL(penstock::file_test::advise)
PENSTOCK_KERNEL(penstock::file_test::advise_by_warps)
PENSTOCK_KERNEL(penstock::file_test::read_steps)
