// A*B^T with tiles that are read from files: the kernel of seed 001 in small.
// RUN: transform
// CHECK: template <class T>
// CHECK: __device__ static inline void multiply__body(
// CHECK: unsigned penstock_at = penstock_run.resumes_at();
// CHECK: for (int k = penstock_at == 0 ? static_cast<int>(0) : penstock_run.load_block<int>(
// CHECK: penstock_at != 0 || (k < tiles)
// CHECK: ::penstock::preemption::begin_read(fs, file, offset, uint64_t{n} * sizeof(T), rows)
// CHECK: penstock_run.leave(1);
// CHECK: int64_t got = ::penstock::preemption::end_read(penstock_read_1, rows);
// CHECK: PENSTOCK_PREEMPTIBLE((multiply<float>), (multiply__preemptible<float>),
// CHECK: PENSTOCK_PREEMPTIBLE((multiply<double>), (multiply__preemptible<double>),
#include "penstock/device/file.cuh"
#include "penstock/kernel.h"

using namespace penstock;

template <class T>
__global__ void multiply(DeviceFileSystem fs, Descriptor file, T* rows, const T* b, T* out,
                         unsigned n, int tiles) {
    const unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
    T sum = 0;
    for (int k = 0; k < tiles; ++k) {
        const int64_t offset = int64_t{k} * n * sizeof(T);
#pragma preempt
        int64_t got = gread(fs, file, offset, uint64_t{n} * sizeof(T), rows);
        if (got <= 0) continue;
        for (unsigned i = 0; i < n; ++i) sum += rows[i] * b[row * n + i];
    }
    out[row] = sum;
}
PENSTOCK_KERNEL(multiply<float>)
PENSTOCK_KERNEL(multiply<double>)
