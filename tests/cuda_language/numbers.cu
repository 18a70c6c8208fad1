// Integers, words of several parts, roundings and conversions.
#include "cuda_language/kernels.h"

namespace penstock::cuda_language {

__global__ void integers(double* out) {
    int i = 0;
    out[i++] = __popc(0xf0f0u) + __popcll(~0ull);
    out[i++] = __ffs(0x80) + __ffsll(1ll << 40);
    out[i++] = __clz(1) + __clzll(1ll);
    out[i++] = __brev(1u);
    out[i++] = static_cast<double>(__brevll(2ull));
    out[i++] = __fns(0xb4u, 0, 3);
    out[i++] = __fns(0xb4u, 31, -2);
    out[i++] = __fns(0xb4u, 0, 9);
    out[i++] = __funnelshift_l(0x80000000u, 1u, 33);
    out[i++] = __funnelshift_r(0u, 1u, 1);
    out[i++] = __funnelshift_lc(7u, 1u, 32) + __funnelshift_rc(1u, 9u, 40);
    out[i++] = __byte_perm(0x33221100u, 0x77665544u, 0x7531u);
    out[i++] = __mulhi(1 << 30, 1 << 10);
    out[i++] = __umulhi(~0u, ~0u);
    out[i++] = static_cast<double>(__mul64hi(-(1ll << 62), 1ll << 10));
    out[i++] = static_cast<double>(__umul64hi(~0ull, 1ull << 40));
    out[i++] = __mul24(0x00ffffff, 3);  // -1 in 24 bits
    out[i++] = __umul24(0xff000002u, 3u);
    out[i++] = __sad(-2147483647, 2147483647, 5u);
    out[i++] = __usad(3u, 10u, 1u);
    out[i++] = __hadd(2147483647, 2147483645);
    out[i++] = __rhadd(-3, -2);
    out[i++] = __uhadd(~0u, 1u);
    out[i++] = __urhadd(~0u, 2u);
    out[i++] = __dp4a(static_cast<int>(0xff020304), 0x01010203, 100);  // -1, 2, 3, 4
    out[i++] = __dp4a(0xff020304u, 0x01010203u, 100u);
    out[i++] = __dp4a(make_char4(1, 2, 3, -4), make_char4(5, 6, 7, 8), 0);
    out[i++] = __dp2a_lo(static_cast<int>(0xffff0002), 0x05060708, 1);
    out[i++] = __dp2a_hi(0xffff0002u, 0x05060708u, 1u);
}

__global__ void packed_parts(unsigned a, unsigned b, unsigned* out) {
    int i = 0;
    out[i++] = __vadd4(a, b);
    out[i++] = __vaddss4(a, b);
    out[i++] = __vaddus4(a, b);
    out[i++] = __vsub4(a, b);
    out[i++] = __vsubss4(a, b);
    out[i++] = __vsubus4(a, b);
    out[i++] = __vabs4(a);
    out[i++] = __vabsss4(a);
    out[i++] = __vneg4(a);
    out[i++] = __vnegss4(a);
    out[i++] = __vavgu4(a, b);
    out[i++] = __vhaddu4(a, b);
    out[i++] = __vabsdiffs4(a, b);
    out[i++] = __vabsdiffu4(a, b);
    out[i++] = __vmaxs4(a, b);
    out[i++] = __vmaxu4(a, b);
    out[i++] = __vmins4(a, b);
    out[i++] = __vminu4(a, b);
    out[i++] = __vcmpeq4(a, b);
    out[i++] = __vcmpgts4(a, b);
    out[i++] = __vcmpgtu4(a, b);
    out[i++] = __vsetles4(a, b);
    out[i++] = __vsads4(a, b);
    out[i++] = __vsadu4(a, b);
    out[i++] = __vadd2(a, b);
    out[i++] = __vsubss2(a, b);
    out[i++] = __vmaxs2(a, b);
    out[i++] = __vsadu2(a, b);
    out[i++] = __vcmpltu2(a, b);
    out[i++] = __vavgs4(a, b);
}

__global__ void rounded(float third, double* out) {
    int i = 0;
    const double wide_third = 1.0 / 3.0;
    out[i++] = __fadd_rn(1.0f, third);
    out[i++] = __fadd_rz(1.0f, third);
    out[i++] = __fadd_ru(1.0f, third);
    out[i++] = __fadd_rd(-1.0f, -third);
    out[i++] = __fsub_ru(1.0f, third);
    out[i++] = __fmul_rd(third, third);
    out[i++] = __fmul_ru(third, third);
    out[i++] = __fdiv_rz(2.0f, 3.0f);
    out[i++] = __fdiv_ru(2.0f, 3.0f);
    out[i++] = __fsqrt_rd(2.0f);
    out[i++] = __fsqrt_ru(2.0f);
    out[i++] = __frcp_rz(3.0f);
    out[i++] = __frcp_ru(3.0f);
    out[i++] = __fmaf_rn(third, third, 1.0f);
    out[i++] = __fmaf_ru(third, third, 1.0f);
    out[i++] = __frsqrt_rn(2.0f);
    out[i++] = __dadd_ru(1.0, wide_third);
    out[i++] = __dadd_rd(1.0, wide_third);
    out[i++] = __dmul_rz(wide_third, -wide_third);
    out[i++] = __dmul_rd(wide_third, -wide_third);
    out[i++] = __ddiv_ru(1.0, 3.0);
    out[i++] = __dsqrt_rz(2.0);
    out[i++] = __drcp_ru(3.0);
    out[i++] = __fma_rn(wide_third, 3.0, -1.0);
    out[i++] = __saturatef(1.5f) + __saturatef(-2.0f);
}

__global__ void converted(float large, double* out) {
    int i = 0;
    out[i++] = __float2int_rn(2.5f);
    out[i++] = __float2int_rz(-2.7f);
    out[i++] = __float2int_ru(2.1f);
    out[i++] = __float2int_rd(-2.1f);
    out[i++] = __float2int_rn(large);
    out[i++] = __float2int_rn(-large);
    out[i++] = __float2int_rn(large - large * large * large * large * large);  // NaN or -infinity
    out[i++] = __float2uint_rn(3.5f);
    out[i++] = __float2uint_rz(-5.0f);
    out[i++] = static_cast<double>(__float2ll_rd(-0.5f));
    out[i++] = static_cast<double>(__float2ull_ru(0.5f));
    out[i++] = __double2int_rn(-3.5);
    out[i++] = __double2uint_ru(4.1);
    out[i++] = static_cast<double>(__double2ll_rz(-1e15 - 0.5));
    out[i++] = static_cast<double>(__double2ull_rn(1e19));
    out[i++] = __int2float_rz(16777217);
    out[i++] = __int2float_ru(16777217);
    out[i++] = __uint2float_rd(~0u);
    out[i++] = __uint2float_rn(~0u);
    out[i++] = __ll2float_rz((1ll << 40) + 1);
    out[i++] = __ull2float_ru((1ull << 40) + 1);
    out[i++] = __ll2double_rd((1ll << 60) + 1);
    out[i++] = __ull2double_ru((1ull << 60) + 1);
    out[i++] = __int2double_rn(-7) + __uint2double_rn(9u);
    out[i++] = __double2float_rz(0.1);
    out[i++] = __double2float_ru(0.1);
    out[i++] = __float_as_int(1.0f);
    out[i++] = __float_as_uint(-1.0f);
    out[i++] = __int_as_float(0x40000000);
    out[i++] = __uint_as_float(0xc0000000u);
    out[i++] = static_cast<double>(__double_as_longlong(1.0));
    out[i++] = __longlong_as_double(0x4000000000000000ll);
    out[i++] = __double2hiint(1.0);
    out[i++] = __double2loint(__hiloint2double(5, 77));
}

PENSTOCK_KERNEL(integers)
PENSTOCK_KERNEL(packed_parts)
PENSTOCK_KERNEL(rounded)
PENSTOCK_KERNEL(converted)

}  // namespace penstock::cuda_language
