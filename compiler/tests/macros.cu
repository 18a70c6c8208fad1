// Macros in expressions, several declarators, float4, and structured loops.
// RUN: transform
// CHECK: int tx = threadIdx.x, ty = threadIdx.y, *none = nullptr;
// CHECK: limit = MIN(rows, cols), extra = penstock_at == 0 ? static_cast<int>(int(in[IDX(ty, tx,
//    cols)].x)) :
// CHECK: other = {1, 2, 3, 4};
// CHECK: if (penstock_at == 0) { CHECKED(rows); }
// CHECK: #pragma unroll
// CHECK: for (int i = penstock_at == 0 ?
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

#define IDX(i, j, n) ((i) * (n) + (j))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define BLOCK 16
#define CHECKED(x) do { if ((x) < 0) return; } while (0)
__global__ void kernel(const float4* __restrict__ in, float* out, int rows, int cols) {
    int tx = threadIdx.x, ty = threadIdx.y, *none = nullptr;
    int bx = blockIdx.x, limit = MIN(rows, cols), extra = int(in[IDX(ty, tx, cols)].x);
    float4 point = in[IDX(ty, tx, cols)], other = {1, 2, 3, 4};
    float4 called(make_float4(1, 2, in[0].x, 4));
    float a[2] = {0}, b = 1.0f;
    unsigned int wide{3};
    CHECKED(rows);
#pragma unroll
    for (int i = 0, j = extra; i < BLOCK; ++i, --j) {
        if (i == limit) break;
        yield();
        a[0] += point.x + j + called.z, b += other.w;
#pragma unroll 4
        for (int k = 0; k < 4; ++k) a[1] += k;
    }
    wide += bx;
    out[IDX(ty, tx, cols)] = a[0] + a[1] + b + wide + (none != nullptr);
}
PENSTOCK_KERNEL(kernel)
