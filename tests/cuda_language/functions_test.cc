// Goal: CUDA's mathematical functions give what mathematics says: against the C++ library's where
// it has the function or its inverse, else against figures from tables.
#include <cmath>

#include "cuda_language/fixture.h"

namespace penstock::cuda_language {
namespace {

constexpr double kDouble = 4e-15, kFloat = 2e-7;  // a few units in the last place

TEST_F(CudaLanguage, FunctionsThatCppDoesNotHave) {
    constexpr double x = 0.25, root = 0.70710678118654752;
    const double normal = 0.5 * std::erfc(-x * root);
    const std::vector<Wanted> wanted = {{"normcdf", normal, kDouble},
                                        {"normcdff", normal, kFloat},
                                        {"normcdfinv", -0.67448975019608174, kDouble},
                                        {"normcdfinvf", -0.67448975019608174, kFloat},
                                        {"erfinv", 0.22531205501217808, kDouble},
                                        {"erfinvf", 0.22531205501217808, kFloat},
                                        {"erfinv", -2.3267537655135242, kDouble},
                                        {"erfcinv", 0.81341984759761854, 1e-9},
                                        {"erfcinvf", 0.81341984759761854, kFloat},
                                        {"erfcinv(1e-30)", 8.1486162231699, 1e-9},
                                        {"erfcinv(1.75)", -0.81341984759761854, 1e-9},
                                        {"erfcx", std::exp(x * x) * std::erfc(x), kDouble},
                                        {"erfcxf", std::exp(x * x) * std::erfc(x), kFloat},
                                        {"erfcx(10)", 0.056140992743822585, kDouble},
                                        {"erfcx(1000)", 0.0005641893014533877, 1e-12},
                                        {"sinpi", root, kDouble},
                                        {"sinpif", root, kFloat},
                                        {"sinpi(1e6 + 0.5)", 1.0},
                                        {"cospi", root, kDouble},
                                        {"cospif", root, kFloat},
                                        {"cospi(-2.5)", 0.0},
                                        {"rsqrt", 2.0},
                                        {"rsqrtf", 2.0},
                                        {"rcbrt", 0.5, kDouble},
                                        {"rcbrtf", 0.5, kFloat},
                                        {"rhypot", 0.2, kDouble},
                                        {"rhypotf", 0.2, kFloat},
                                        {"norm3d", 7.0, kDouble},
                                        {"norm3df", 7.0, kFloat},
                                        {"norm4d", 2e200, kDouble},
                                        {"norm4df", 9.0, kFloat},
                                        {"rnorm3d", 1.0 / 7.0, kDouble},
                                        {"rnorm3df", 1.0 / 7.0, kFloat},
                                        {"rnorm4df", 1.0 / 9.0, kFloat},
                                        {"cyl_bessel_i0", 1.2660658777520084, kDouble},
                                        {"cyl_bessel_i1f", 1.5906368546373291, kFloat},
                                        {"1 + sincospi: sine - cosine", 1.0, kDouble},
                                        {"sincos", 1.0, kDouble},
                                        {"exp10", 110.0, kDouble},
                                        {"norm", 7.0, kDouble},
                                        {"abs", 7.0},
                                        {"fdivide", 0.5}};
    check(wanted, functions, x);
}

TEST_F(CudaLanguage, InverseFunctionsInvert) {
    auto* out = array<double>(kResultsMax);
    for (const double x : {0.001, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999}) {
        ASSERT_TRUE(run({1, 1}, functions, x, out).ok());
        EXPECT_NEAR(0.5 * std::erfc(-out[2] / std::sqrt(2.0)) / x, 1.0, 1e-13) << x;  // normcdfinv
        EXPECT_NEAR(std::erf(out[4]) / x, 1.0, 1e-14) << x;                           // erfinv
        EXPECT_NEAR(std::erfc(out[7]) / x, 1.0, 1e-13) << x;                          // erfcinv
    }
}

TEST_F(CudaLanguage, FastFunctions) {
    constexpr float x = 1.7f;
    check({{"__expf", std::exp(x), kFloat},
           {"__exp10f", std::pow(10.0, x), kFloat},
           {"__logf", std::log(x), kFloat},
           {"__log2f", std::log2(x), kFloat},
           {"__log10f", std::log10(x), kFloat},
           {"__sinf", std::sin(x), kFloat},
           {"__cosf", std::cos(x), kFloat},
           {"__tanf", std::tan(x), kFloat},
           {"__powf", std::pow(x, 3.5), kFloat},
           {"__fdividef", x / 3.0f},
           {"__sincosf", std::sin(x), kFloat},
           {"__sincosf", std::cos(x), kFloat}},
          fast_functions, x);
}

TEST_F(CudaLanguage, MinAndMaxOfMixedTypes) {
    check({{"min(int, int)", -1},
           {"max(int, int)", 3},
           {"max(int, unsigned)", 4294967295.0},
           {"min(long), max(long long)", 2},
           {"min(unsigned long, long)", 5},
           {"of one type", 4.0},
           {"of float and double", 4.0},
           {"of what is not a number", 2.0},
           {"umin, umax", 7},
           {"llmin, llmax", 0},
           {"fminf, fmaxf", 3.0}},
          least_and_largest, -1);
}

}  // namespace
}  // namespace penstock::cuda_language
