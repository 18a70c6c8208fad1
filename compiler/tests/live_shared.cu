// A shared variable that is used later is saved, with a barrier behind its load.
// RUN: transform
// CHECK: __shared__ float tile[32][33]; if (penstock_at != 0) { penstock_run.load_shared(&tile,
//    sizeof tile, 0); __syncthreads(); }
// CHECK: penstock_run.save_shared(&tile, sizeof tile, 0);
// CHECK-NOT: save_shared(&unused
// CHECK: .shared_size = 4224
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

__global__ void kernel(const float* in, float* out) {
    __shared__ float tile[32][33];
    __shared__ float unused[8];
    unused[threadIdx.x % 8] = 1;
    tile[threadIdx.y][threadIdx.x] = in[threadIdx.x] + unused[0];
    __syncthreads();
    yield();
    out[threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
PENSTOCK_KERNEL(kernel)
