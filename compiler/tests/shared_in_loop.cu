// A shared variable of an inner scope that lasts across a point outside of it moves to the top.
// RUN: transform
// CHECK: unsigned penstock_at = penstock_run.resumes_at(); __shared__ float
//    tile[kTile] [kTile + 1]; if (penstock_at != 0) { penstock_run.load_shared(&tile,
// CHECK: penstock_run.save_shared(&tile, sizeof tile, 0);
// CHECK: leave(1);
// CHECK: tile[threadIdx.y][threadIdx.x] = in[k];
// CHECK: .shared_size = 1088
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

template <int kTile>
__global__ void kernel(const float* in, float* out, int n) {
    float sum = 0;
    for (int k = 0; k < n; ++k) {
        yield();
        __shared__ float tile[kTile]
                             [kTile + 1];
        tile[threadIdx.y][threadIdx.x] = in[k];
        __syncthreads();
        sum += tile[threadIdx.x][threadIdx.y];
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}
PENSTOCK_KERNEL(kernel<16>)
