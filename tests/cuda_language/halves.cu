// Half precision and bfloat16.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda_language/kernels.h"

namespace penstock::cuda_language {

__global__ void half_arithmetic(float third, double* out) {
    int i = 0;
    const __half a = __float2half(third), b = __float2half(2.0f), one = __float2half_rn(1.0f);
    out[i++] = __half2float(a);
    out[i++] = __half2float(__hadd(a, one));
    out[i++] = __half2float(__hsub(a, one));
    out[i++] = __half2float(__hmul(a, b));
    out[i++] = __half2float(__hdiv(one, a));
    out[i++] = __half2float(__hfma(a, a, one));
    out[i++] = __half2float(a + b * one - one / b);
    out[i++] = __half2float(hsqrt(b));
    out[i++] = __half2float(hrcp(b)) + __half2float(hexp(one)) + __half2float(hlog2(b));
    out[i++] = __half2float(__hneg(a)) + __half2float(__habs(__hneg(a)));
    out[i++] = __heq(a, a) && __hlt(a, b) && __hge(b, a) && !__hgt(a, b) && __hne(a, b);
    out[i++] = (a < b) + (a == a) + (a != b);
    out[i++] = __half2float(__hmax(a, b)) - __half2float(__hmin(a, b));
    out[i++] = __half2float(__float2half_rz(third)) - __half2float(__float2half_ru(third));
    out[i++] = __half2int_rn(__float2half(2.5f)) + __half2int_rz(__float2half(-1.9f));
    out[i++] = __half2float(__int2half_rn(2049)) + __half2float(__uint2half_rz(2051u));
    out[i++] = __half_as_ushort(one) + __half2float(__ushort_as_half(0x4000));
    out[i++] = __hisnan(__float2half(NAN)) + 2 * __hisinf(__float2half(1e6f));
    out[i++] = __half2float(__double2half(0.1));
    const __half2 p = __floats2half2_rn(1.5f, -2.0f), q = __float2half2_rn(2.0f);
    const __half2 s = __hfma2(p, q, __halves2half2(one, b));
    out[i++] = __low2float(s);
    out[i++] = __high2float(s);
    const float2 sum = __half22float2(__hadd2(p, q) + p * q);
    out[i++] = sum.x;
    out[i++] = sum.y;
    out[i++] = __low2float(__lowhigh2highlow(p)) + __half2float(__high2half(p));
    out[i++] = __hbgt2(q, p) + 2 * __hbeq2(p, q);
    out[i++] = __low2float(__hgt2(q, p)) + __half2float(p.y);
    half alias = 3.0f;
    alias += one;
    out[i++] = static_cast<float>(alias);
}

__global__ void bfloat_arithmetic(float third, double* out) {
    int i = 0;
    const __nv_bfloat16 a = __float2bfloat16(third), b = __float2bfloat16_rn(2.0f);
    out[i++] = __bfloat162float(a);
    out[i++] = __bfloat162float(__hadd(a, b));
    out[i++] = __bfloat162float(__hmul(a, a));
    out[i++] = __bfloat162float(__hfma(a, a, b));
    out[i++] = __bfloat162float(a / b - b);
    out[i++] = __bfloat162float(hsqrt(b));
    out[i++] = (a < b) + 2 * __hge(a, b);
    const __nv_bfloat162 p = __floats2bfloat162_rn(1.5f, -2.0f);
    const __nv_bfloat162 s = __hmul2(p, __float2bfloat162_rn(3.0f));
    out[i++] = __low2float(s) + __bfloat162float(__high2bfloat16(s));
    out[i++] = __bfloat162int_rn(__float2bfloat16(7.5f)) + __bfloat16_as_ushort(b);
    out[i++] = __bfloat162float(__float2bfloat16_rz(third)) -
               __bfloat162float(__float2bfloat16_ru(third));
    const float2 both = __bfloat1622float2(__hadd2(p, p));
    out[i++] = both.x * both.y;
    nv_bfloat16 alias = __int2bfloat16_rn(257);
    out[i++] = __bfloat162float(alias);
}

__global__ void half_of_every_float(const unsigned* words, int count, unsigned* out) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
        const __half half = __float2half(__uint_as_float(words[i]));
        const __half back = __float2half(__half2float(half));
        out[i] = __half_as_ushort(half) | static_cast<unsigned>(__half_as_ushort(back)) << 16;
    }
}

PENSTOCK_KERNEL(half_arithmetic)
PENSTOCK_KERNEL(bfloat_arithmetic)
PENSTOCK_KERNEL(half_of_every_float)

}  // namespace penstock::cuda_language
