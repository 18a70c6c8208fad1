// Kernels of the tests of advice, as the test program launches them.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/device/handle.h"
#include "penstock/kernel.h"

namespace penstock::file_test {

struct AdviceJob {
    DeviceFileSystem fs;
    Descriptor file;
    int64_t offset;
    uint64_t size;
    std::byte* buffer;
    int64_t* result;  // of the call; of reads: the sum of their bytes, or the last error
};

// One gadvise, called by a block or by each of its warps.
PENSTOCK_GLOBAL void advise(AdviceJob job, Advice advice);
PENSTOCK_GLOBAL void advise_by_warps(AdviceJob job, Advice advice);
// `count` reads of job.size bytes, `step` bytes apart, from job.offset on.
PENSTOCK_GLOBAL void read_steps(AdviceJob job, int64_t step, uint64_t count);

}  // namespace penstock::file_test
