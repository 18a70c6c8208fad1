// Goal: half precision and bfloat16 are rounded as IEEE 754 says: single results against figures
// worked out apart from the code, and every half against a search for the nearest.
#include <cmath>
#include <cstring>

#include "cuda_language/fixture.h"

namespace penstock::cuda_language {
namespace {

TEST_F(CudaLanguage, HalfPrecision) {
    check({{"__float2half", 0.333251953125},
           {"__hadd", 1.3330078125},
           {"__hsub", -0.6669921875},
           {"__hmul", 0.66650390625},
           {"__hdiv", 3.0},
           {"__hfma", 1.111328125},
           {"operators", 1.833984375},
           {"hsqrt", 1.4140625},
           {"hrcp, hexp, hlog2", 0.5 + 2.71875 + 1.0},
           {"__hneg, __habs", 0.0},
           {"__heq ...", 1.0},
           {"<, ==, !=", 3.0},
           {"__hmax, __hmin", 2.0 - 0.333251953125},
           {"__float2half_rz, _ru", -0.000244140625},
           {"__half2int_rn, _rz", 2 - 1},
           {"__int2half_rn, __uint2half_rz", 2048 + 2050},
           {"__half_as_ushort, __ushort_as_half", 0x3c00 + 2},
           {"__hisnan, __hisinf", 3},
           {"__double2half", 0.0999755859375},
           {"__hfma2, low", 4.0},
           {"__hfma2, high", -2.0},
           {"__hadd2, *, low", 6.5},
           {"__hadd2, *, high", -4.0},
           {"__lowhigh2highlow, __high2half", -4.0},
           {"__hbgt2, __hbeq2", 1.0},
           {"__hgt2", -1.0},
           {"half", 4.0}},
          half_arithmetic, 1.0f / 3.0f);
}

TEST_F(CudaLanguage, Bfloat16) {
    check({{"__float2bfloat16", 0.333984375},
           {"__hadd", 2.328125},
           {"__hmul", 0.111328125},
           {"__hfma", 2.109375},
           {"operators", -1.8359375},
           {"hsqrt", 1.4140625},
           {"<, __hge", 1.0},
           {"__hmul2", 4.5 - 6.0},
           {"__bfloat162int_rn, __bfloat16_as_ushort", 8 + 0x4000},
           {"__float2bfloat16_rz, _ru", -0.001953125},
           {"__hadd2", -12.0},
           {"__int2bfloat16_rn", 256}},
          bfloat_arithmetic, 1.0f / 3.0f);
}

// The value of a half, by its definition.
double value_of(unsigned bits) {
    const double digits = bits & 0x3ff;
    const int exponent = static_cast<int>(bits >> 10 & 31);
    if (exponent == 31) return 65536.0;  // where rounding has infinity lie
    return exponent == 0 ? std::ldexp(digits, -24) : std::ldexp(1024 + digits, exponent - 25);
}

TEST_F(CudaLanguage, FloatsGoToTheNearestHalf) {
    // Each half, the midpoint to the next, and the floats on both sides of that.
    std::vector<unsigned> words, wanted;
    const auto add = [&](float value, unsigned half) {
        unsigned word;
        std::memcpy(&word, &value, sizeof word);
        words.push_back(word);
        wanted.push_back(half);
        words.push_back(word | 0x80000000u);
        wanted.push_back(half | 0x8000u);
    };
    for (unsigned half = 0; half < 0x7c00; ++half) {
        const auto here = static_cast<float>(value_of(half));
        const auto middle = static_cast<float>((value_of(half) + value_of(half + 1)) / 2);
        add(here, half);
        add(middle, half + half % 2);
        add(std::nextafter(middle, 0.0f), half);
        add(std::nextafter(middle, 1e9f), half + 1);
    }
    auto* in = array<unsigned>(words.size());
    auto* out = array<unsigned>(words.size());
    std::memcpy(in, words.data(), words.size() * sizeof(unsigned));
    ASSERT_TRUE(run({1, 32}, half_of_every_float, static_cast<const unsigned*>(in),
                    static_cast<int>(words.size()), out)
                    .ok());
    size_t wrong = 0;
    for (size_t i = 0; i < words.size(); ++i)
        wrong += out[i] != (wanted[i] | wanted[i] << 16) ? 1 : 0;
    EXPECT_EQ(wrong, 0u) << "of " << words.size();
}

}  // namespace
}  // namespace penstock::cuda_language
