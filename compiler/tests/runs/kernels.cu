// Kernels of many shapes, with points, whose results test_preempt_runs.py compares: the form that
// spins against the form whose blocks leave at random points.
#include "kernels.h"

#include <cooperative_groups.h>

#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

#define IDX(i, j, n) ((i) * (n) + (j))
#define MY_ROW (blockIdx.x * blockDim.x + threadIdx.x)

struct Pair {
    float first;
    int second;
};

__device__ inline Pair make_pair_of(const float* in, int i) {
    return {in[i] + 1, static_cast<int>(in[i + 1]) + 2};
}
__device__ inline void bump(float& value) { value += 1; }
__device__ unsigned block_offset() { return blockIdx.x * 64 + gridDim.x; }

// Scalars, arrays, elements, bindings, pointers and references to locals, lambdas.
__global__ void locals(const float* in, float* out, int n) {
    const int row = MY_ROW;
    float a = in[row], b = in[row + 1], c = in[row + 2], sum = 0;
    float acc[8];
    float whole[4] = {in[row], 2, in[row + 3]};
    for (int i = 0; i < 8; ++i) acc[i] = in[row + i] * i;
    float* p = &a;
    float& r = b;
    auto add = [&](float x) { c += x; };
    const float factor = in[row + 4];
    auto scaled = [=](float x) { return x * factor + row; };
    auto place = [row](int i) { return row + i * static_cast<int>(gridDim.x); };
    auto [first, second] = make_pair_of(in, row);
    yield();
    for (int k = 0, j = 5; k < n; ++k, --j) {
        *p += k;
        r += j;
        add(first);
        bump(acc[3]);
        yield();
        sum += scaled(acc[3]) + acc[5] + whole[k % 4] + second;
        if (k == 2) continue;
        sum += place(k);
        yield();
        whole[(k + 1) % 4] += sum;
    }
    out[row] = a + b + c + sum + first + block_offset();
}
PENSTOCK_KERNEL(locals)

// Static and dynamic shared memory, early exits that all threads take, while and do.
template <class T, int kTile>
__global__ void shared(const T* in, T* out, int n) {
    __shared__ T tile[kTile][kTile + 1];
    __shared__ T total;
    extern __shared__ unsigned char raw[];
    T* dynamic = reinterpret_cast<T*>(raw);
    const int tx = threadIdx.x % kTile, ty = threadIdx.x / kTile;
    T sum = 0;
    if (n == 0) return;
    if (threadIdx.x == 0) total = 0;
    dynamic[threadIdx.x] = in[MY_ROW];
    for (int k = 0; k < n; ++k) {
        tile[ty % kTile][tx] = in[IDX(k, threadIdx.x, 64)] + dynamic[threadIdx.x];
        __syncthreads();
        yield();
        for (int i = 0; i < kTile; ++i) sum += tile[i][tx] * tile[ty % kTile][i];
        __syncthreads();
        int turns = 0;
        while (turns < k) {
            dynamic[threadIdx.x] += 1;
            if (turns % 2 == 0) {
                yield();
            } else if (turns == 3) {
                do {
                    ++turns;
                    yield();
                } while (turns < 5);
            }
            ++turns;
        }
        if (threadIdx.x == 0) total += sum;
        __syncthreads();
        if (total > T(1000000)) break;
    }
    out[MY_ROW] = sum + total + dynamic[threadIdx.x ^ 1];
}
PENSTOCK_KERNEL(shared<float, 8>)
PENSTOCK_KERNEL(shared<double, 8>)

// Reads with a point, of three forms, and returns in divergent flow behind the last point.
__global__ void reads(DeviceFileSystem fs, Descriptor file, unsigned char* buffers, long long* out,
                      int n) {
    __shared__ unsigned char local[256];
    unsigned char* mine = buffers + blockIdx.x * 4096;
    int64_t sum = 0, last = -1;
#pragma preempt
    const int64_t head = gread(fs, file, blockIdx.x * 16, 16, mine);
    for (int i = 0; i < n; ++i) {
#pragma preempt
        last = gread(fs, file, (blockIdx.x * n + i) * 4096 + 7, 4096, mine);
        for (int64_t j = threadIdx.x; j < last; j += blockDim.x) sum += mine[j];
        __syncthreads();
#pragma preempt
        sum += gread(fs, file, i * 256, sizeof local, local);
        sum += local[threadIdx.x] + threadIdx.x;
        __syncthreads();
        AsyncHandle handle = gread_async(fs, file, i * 512, 512, mine);
        preempt_point(fs, handle);
        sum += gwait(fs, handle);
        sum += mine[threadIdx.x];
        __syncthreads();
    }
    if (threadIdx.x % 3 == 1) return;
    out[MY_ROW] = sum + head + last;
}
PENSTOCK_KERNEL(reads)

// Groups that are made again, uniform values, and a parameter that changes.
__global__ void groups(const float* in, float* out, int n) {
    namespace cg = cooperative_groups;
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<16>(block);
    float sum = 0;
    int uniform = 1;
    out += threadIdx.x;
    for (; n > 0; --n) {
        uniform = uniform * 3 % 17;
        yield();
        sum += tile.shfl_xor(in[MY_ROW + n], 1) + tile.thread_rank() + uniform;
        block.sync();
    }
    out[blockIdx.x * blockDim.x] = sum + uniform;
}
PENSTOCK_KERNEL(groups)
