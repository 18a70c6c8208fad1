// Goal: CUDA's functions on integers, packed words and roundings give the bits that the definitions
// of their instructions give: worked out by hand, or with more digits on the host.
#include <cfenv>
#include <cmath>
#include <limits>

#include "cuda_language/fixture.h"

namespace penstock::cuda_language {
namespace {

TEST_F(CudaLanguage, Integers) {
    check({{"__popc", 8 + 64},
           {"__ffs", 8 + 41},
           {"__clz", 31 + 63},
           {"__brev", 2147483648.0},
           {"__brevll", 0x1p62},
           {"__fns, third from 0", 5},  // of bits 2, 4, 5, 7
           {"__fns, second down from 31", 5},
           {"__fns, none", 4294967295.0},
           {"__funnelshift_l", 3},
           {"__funnelshift_r", 2147483648.0},
           {"__funnelshift_lc, _rc", 7 + 9},
           {"__byte_perm", 0x77553311},
           {"__mulhi", 256},
           {"__umulhi", 4294967294.0},
           {"__mul64hi", -256},
           {"__umul64hi", 0x1p40 - 1},
           {"__mul24", -3},
           {"__umul24", 6},
           {"__sad", 4294967299.0 - 4294967296.0},
           {"__usad", 8},
           {"__hadd", 2147483646.0},
           {"__rhadd", -2},
           {"__uhadd", 2147483648.0},
           {"__urhadd", 2147483649.0},
           {"__dp4a", 100 - 1 + 2 + 6 + 12},
           {"__dp4a", 100 + 255 + 2 + 6 + 12},
           {"__dp4a", 5 + 12 + 21 - 32},
           {"__dp2a_lo", 1 + 2 * 8 - 7},
           {"__dp2a_hi", 1 + 2 * 6 + 65535 * 5}},
          integers);
}

TEST_F(CudaLanguage, PackedParts) {
    constexpr unsigned wanted[] = {
        0x81fd8120u,  // __vadd4
        0x81fd7f20u,  // __vaddss4
        0x81ff8120u,  // __vaddus4
        0x7f017d00u,  // __vsub4
        0x80017d00u,  // __vsubss4
        0x7f017d00u,  // __vsubus4
        0x80017f10u,  // __vabs4
        0x7f017f10u,  // __vabsss4
        0x800181f0u,  // __vneg4
        0x7f0181f0u,  // __vnegss4
        0x41ff4110u,  // __vavgu4
        0x40fe4010u,  // __vhaddu4
        0x81017d00u,  // __vabsdiffs4
        0x7f017d00u,  // __vabsdiffu4
        0x01ff7f10u,  // __vmaxs4
        0x80ff7f10u,  // __vmaxu4
        0x80fe0210u,  // __vmins4
        0x01fe0210u,  // __vminu4
        0x000000ffu,  // __vcmpeq4
        0x00ffff00u,  // __vcmpgts4
        0xffffff00u,  // __vcmpgtu4
        0x01000001u,  // __vsetles4
        0x000000ffu,  // __vsads4
        0x000000fdu,  // __vsadu4
        0x82fd8120u,  // __vadd2
        0x80007d00u,  // __vsubss2
        0x01fe7f10u,  // __vmaxs2
        0x0000fc01u,  // __vsadu2
        0x00000000u,  // __vcmpltu2
        0xc0fe4110u,  // __vavgs4
    };
    auto* out = array<unsigned>(kResultsMax);
    ASSERT_TRUE(run({1, 1}, packed_parts, 0x80ff7f10u, 0x01fe0210u, out).ok());
    for (size_t i = 0; i < std::size(wanted); ++i) EXPECT_EQ(out[i], wanted[i]) << i;
}

// `exact` as a T, by a rounding.
template <class T>
double rounded_to(long double exact, int mode) {
    T near = static_cast<T>(exact);
    const T up = std::numeric_limits<T>::infinity();
    const bool to_zero_is_down = exact > 0;
    if (mode == FE_TOWARDZERO) mode = to_zero_is_down ? FE_DOWNWARD : FE_UPWARD;
    if (mode == FE_UPWARD && near < exact) near = std::nextafter(near, up);
    if (mode == FE_DOWNWARD && near > exact) near = std::nextafter(near, -up);
    return near;
}
double single(long double exact, int mode) { return rounded_to<float>(exact, mode); }
double wide(long double exact, int mode) { return rounded_to<double>(exact, mode); }

TEST_F(CudaLanguage, Roundings) {
    constexpr float third = 1.0f / 3.0f;
    constexpr long double t = third, w = 1.0 / 3.0;
    constexpr int kNear = FE_TONEAREST, kZero = FE_TOWARDZERO, kUp = FE_UPWARD, kDown = FE_DOWNWARD;
    const long double root = std::sqrt(2.0L);
    ASSERT_NE(single(1 + t, kDown), single(1 + t, kUp));
    check({{"__fadd_rn", single(1 + t, kNear)},
           {"__fadd_rz", single(1 + t, kZero)},
           {"__fadd_ru", single(1 + t, kUp)},
           {"__fadd_rd", single(-1 - t, kDown)},
           {"__fsub_ru", single(1 - t, kUp)},
           {"__fmul_rd", single(t * t, kDown)},
           {"__fmul_ru", single(t * t, kUp)},
           {"__fdiv_rz", single(2.0L / 3, kZero)},
           {"__fdiv_ru", single(2.0L / 3, kUp)},
           {"__fsqrt_rd", single(root, kDown)},
           {"__fsqrt_ru", single(root, kUp)},
           {"__frcp_rz", single(1.0L / 3, kZero)},
           {"__frcp_ru", single(1.0L / 3, kUp)},
           {"__fmaf_rn", single(t * t + 1, kNear)},
           {"__fmaf_ru", single(t * t + 1, kUp)},
           {"__frsqrt_rn", single(1 / root, kNear)},
           {"__dadd_ru", wide(1 + w, kUp)},
           {"__dadd_rd", wide(1 + w, kDown)},
           {"__dmul_rz", wide(-w * w, kZero)},
           {"__dmul_rd", wide(-w * w, kDown)},
           {"__ddiv_ru", wide(1.0L / 3, kUp)},
           {"__dsqrt_rz", wide(root, kZero)},
           {"__drcp_ru", wide(1.0L / 3, kUp)},
           {"__fma_rn", wide(w * 3 - 1, kNear)},
           {"__saturatef", 1.0}},
          cuda_language::rounded, third);
    EXPECT_EQ(std::fegetround(), FE_TONEAREST);
}

TEST_F(CudaLanguage, Conversions) {
    constexpr int kZero = FE_TOWARDZERO, kUp = FE_UPWARD, kDown = FE_DOWNWARD;
    check({{"__float2int_rn", 2},
           {"__float2int_rz", -2},
           {"__float2int_ru", 3},
           {"__float2int_rd", -3},
           {"__float2int_rn, too large", 2147483647.0},
           {"__float2int_rn, too small", -2147483648.0},
           {"__float2int_rn, infinite", -2147483648.0},
           {"__float2uint_rn", 4},
           {"__float2uint_rz, negative", 0},
           {"__float2ll_rd", -1},
           {"__float2ull_ru", 1},
           {"__double2int_rn", -4},
           {"__double2uint_ru", 5},
           {"__double2ll_rz", -1e15},
           {"__double2ull_rn", 1e19},
           {"__int2float_rz", 16777216},
           {"__int2float_ru", 16777218},
           {"__uint2float_rd", single(4294967295.0L, kDown)},
           {"__uint2float_rn", 4294967296.0},
           {"__ll2float_rz", 0x1p40},
           {"__ull2float_ru", single(0x1p40L + 1, kUp)},
           {"__ll2double_rd", 0x1p60},
           {"__ull2double_ru", wide(0x1p60L + 1, kUp)},
           {"__int2double_rn", 2},
           {"__double2float_rz", single(0.1, kZero)},
           {"__double2float_ru", single(0.1, kUp)},
           {"__float_as_int", 0x3f800000},
           {"__float_as_uint", 3212836864.0},
           {"__int_as_float", 2.0},
           {"__uint_as_float", -2.0},
           {"__double_as_longlong", 4607182418800017408.0},
           {"__longlong_as_double", 2.0},
           {"__double2hiint", 0x3ff00000},
           {"__double2loint", 77}},
          converted, 1e30f);
}

}  // namespace
}  // namespace penstock::cuda_language
