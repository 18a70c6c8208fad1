// Atomics of every type, loads and stores with hints, dynamic shared memory as CUDA declares it,
// and what structs and vectors are aligned to.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda_language/kernels.h"
#include "cuda_language/shared_memory.cuh"

namespace penstock::cuda_language {

__global__ void atomics(Atomics* out) {
    const unsigned me = threadIdx.x;
    atomicAdd(&out->i[0], 2);
    atomicSub(&out->i[1], 3);
    atomicMin(&out->i[2], -static_cast<int>(me));
    atomicMax(&out->i[3], static_cast<int>(me));
    atomicAnd(&out->i[4], ~(1 << me % 4));
    atomicOr(&out->i[5], 1 << me % 8);
    atomicXor(&out->i[6], 1 << me % 8);
    if (atomicCAS(&out->i[7], 0, static_cast<int>(me) + 1) == 0) atomicExch(&out->u[7], me + 1);
    atomicAdd(&out->u[0], 5u);
    atomicSub(&out->u[1], 1u);
    atomicMin(&out->u[2], me);
    atomicMax(&out->u[3], me);
    atomicInc(&out->u[4], 9u);
    atomicDec(&out->u[5], 9u);
    atomicExch(&out->u[6], 77u);
    atomicAdd(&out->w[0], 1ull << 33);
    atomicMin(&out->w[1], 100ull + me);
    atomicMax(&out->w[2], 100ull + me);
    atomicAnd(&out->w[3], ~(1ull << me));
    atomicOr(&out->w[4], 1ull << me);
    atomicXor(&out->w[5], 3ull << me);
    atomicExch(&out->w[6], 99ull);
    atomicCAS(&out->w[7], 0ull, 1234ull);
    atomicMin(&out->l[0], -5ll * me);
    atomicMax(&out->l[1], 5ll * me);
    atomicAdd(&out->f[0], 0.5f);
    atomicExch(&out->f[1], 8.0f);
    atomicAdd(&out->d[0], 0.25);
    atomicCAS(&out->s[0], static_cast<unsigned short>(0), static_cast<unsigned short>(7));
    atomicAdd_block(&out->u[0], 1u);
    atomicAdd_system(&out->u[0], 1u);
    __shared__ __half half;
    __shared__ __half2 pair;
    __shared__ __nv_bfloat16 brain;
    if (me == 0) {
        half = __float2half(0.0f);
        pair = __float2half2_rn(0.0f);
        brain = __float2bfloat16(0.0f);
    }
    __syncthreads();
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    atomicAdd(&half, __float2half(0.5f));
    atomicAdd(&pair, __floats2half2_rn(1.0f, 2.0f));
    atomicAdd(&brain, __float2bfloat16(2.0f));
#endif
    __syncthreads();
    if (me != 0) return;
    out->halves[0] = __half2float(half);
    out->halves[1] = __low2float(pair);
    out->halves[2] = __high2float(pair);
    out->halves[3] = __bfloat162float(brain);
}

__global__ void hinted(const float* in, float* out) {
    const unsigned i = threadIdx.x;
    float sum = __ldg(in + i) + __ldcs(in + i) + __ldcg(in + i) + __ldca(in + i) + __ldcv(in + i);
    sum += __ldlu(in + i);
    const float4 four = __ldg(reinterpret_cast<const float4*>(in) + i / 4);
    __stcs(out + 4 * i, sum);
    __stcg(out + 4 * i + 1, four.x);
    __stwb(out + 4 * i + 2, four.y);
    __stwt(out + 4 * i + 3, four.w);
}

template <class T>
__global__ void sum_of_shared(const T* in, T* out) {
    T* part = SharedMemory<T>();
    part[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
    for (unsigned step = blockDim.x / 2; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

extern __shared__ unsigned whole[];

// The same memory by three names; rows of eight.
__global__ void alias_shared(unsigned* out) {
    extern __shared__ unsigned rows[][8];
    extern __shared__ __align__(16) volatile unsigned char bytes[];
    rows[threadIdx.x / 8][threadIdx.x % 8] = 0x01010101u * threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = whole[threadIdx.x] + bytes[4 * threadIdx.x];
}

struct __align__(16) Aligned {
    float x, y, z;
};

__global__ void aligned_types(unsigned* out) {
    int i = 0;
    out[i++] = sizeof(Aligned);
    out[i++] = sizeof(float3) * 100 + alignof(float3);
    out[i++] = sizeof(float4) * 100 + alignof(float4);
    out[i++] = sizeof(double2) * 100 + alignof(double2);
    out[i++] = sizeof(ulong2) * 100 + alignof(ulong2);
    out[i++] = sizeof(uchar4) * 100 + alignof(uchar4);
    out[i++] = sizeof(__half2) * 100 + alignof(__half2);
    out[i++] = make_uint3(1, 2, 3).z + make_ulong2(4, 5).y + dim3(7).y;
}

PENSTOCK_KERNEL(atomics)
PENSTOCK_KERNEL(hinted)
PENSTOCK_KERNEL(alias_shared)
PENSTOCK_KERNEL(aligned_types)
PENSTOCK_KERNEL(sum_of_shared<float>)
PENSTOCK_KERNEL(sum_of_shared<double>)

}  // namespace penstock::cuda_language
