// Goal: atomics of every type, hinted loads and stores, and `extern __shared__` as CUDA sources
// declare it do what they do on a GPU.
#include <numeric>

#include "cuda_language/fixture.h"

#ifdef __SANITIZE_THREAD__
// A reference to dynamic shared memory is set by the first lane of an OS thread that asks for it.
// Lanes of one thread never run at once, but ThreadSanitizer sees no order between them.
extern "C" const char* __tsan_default_suppressions() {
    return "race:penstock::cuda_language::SharedMemory\nrace:penstock::cuda_language::alias_shared";
}
#endif

namespace penstock::cuda_language {
namespace {

TEST_F(CudaLanguage, AtomicsOfEveryType) {
    auto* a = array<Atomics>(1);
    a->i[4] = -1;
    a->u[2] = 1000;
    a->u[5] = 3;
    a->w[1] = 1000;
    a->w[3] = ~0ull;
    ASSERT_TRUE(run({1, 64}, atomics, a).ok());
    EXPECT_EQ(a->i[0], 128);
    EXPECT_EQ(a->i[1], -192);
    EXPECT_EQ(a->i[2], -63);
    EXPECT_EQ(a->i[3], 63);
    EXPECT_EQ(a->i[4], ~15);
    EXPECT_EQ(a->i[5], 255);
    EXPECT_EQ(a->i[6], 0);  // each bit eight times
    EXPECT_GT(a->i[7], 0);
    EXPECT_EQ(a->u[7], static_cast<unsigned>(a->i[7])) << "one alone has won";
    EXPECT_EQ(a->u[0], 64u * 7);
    EXPECT_EQ(a->u[1], ~0u - 63);
    EXPECT_EQ(a->u[2], 0u);
    EXPECT_EQ(a->u[3], 63u);
    EXPECT_EQ(a->u[4], 64u % 10);
    EXPECT_EQ(a->u[5], 9u);  // 3, then down to 0 and 9 again: 64 steps in rounds of 10
    EXPECT_EQ(a->u[6], 77u);
    EXPECT_EQ(a->w[0], 64ull << 33);
    EXPECT_EQ(a->w[1], 100u);
    EXPECT_EQ(a->w[2], 163u);
    EXPECT_EQ(a->w[3], 0u);
    EXPECT_EQ(a->w[4], ~0ull);
    EXPECT_EQ(a->w[5], 1u);  // two neighbours cancel each bit but the lowest
    EXPECT_EQ(a->w[6], 99u);
    EXPECT_EQ(a->w[7], 1234u);
    EXPECT_EQ(a->l[0], -5 * 63);
    EXPECT_EQ(a->l[1], 5 * 63);
    EXPECT_EQ(a->f[0], 32.0f);
    EXPECT_EQ(a->f[1], 8.0f);
    EXPECT_EQ(a->d[0], 16.0);
    EXPECT_EQ(a->s[0], 7);
    EXPECT_EQ(a->halves[0], 32.0f);
    EXPECT_EQ(a->halves[1], 64.0f);
    EXPECT_EQ(a->halves[2], 128.0f);
    EXPECT_EQ(a->halves[3], 128.0f);
}

TEST_F(CudaLanguage, HintedLoadsAndStores) {
    auto* in = array<float>(64);
    auto* out = array<float>(256);
    std::iota(in, in + 64, 1.0f);
    ASSERT_TRUE(run({1, 64}, hinted, static_cast<const float*>(in), out).ok());
    for (unsigned i = 0; i < 64; ++i) {
        EXPECT_EQ(out[4 * i], 6 * in[i]);
        EXPECT_EQ(out[4 * i + 1], in[i / 4 * 4]);
        EXPECT_EQ(out[4 * i + 2], in[i / 4 * 4 + 1]);
        EXPECT_EQ(out[4 * i + 3], in[i / 4 * 4 + 3]);
    }
}

template <class T, class Test>
void check_sums(Test& test, T* in, T* out) {
    for (int i = 0; i < 64 * 128; ++i) in[i] = static_cast<T>(i % 100);
    ASSERT_TRUE(
        test.run({64, 128, 128 * sizeof(T)}, sum_of_shared<T>, static_cast<const T*>(in), out)
            .ok());
    for (int block = 0; block < 64; ++block) {
        const T sum = std::accumulate(in + 128 * block, in + 128 * (block + 1), T{0});
        EXPECT_EQ(out[block], sum) << block;
    }
}

class DynamicShared : public CudaLanguage {
public:
    using CudaLanguage::run;
};

TEST_F(DynamicShared, IsDeclaredAsInCuda) {
    check_sums(*this, array<float>(64 * 128), array<float>(64));
    check_sums(*this, array<double>(64 * 128), array<double>(64));
}

TEST_F(DynamicShared, HasOneAddressByEveryName) {
    auto* out = array<unsigned>(64);
    ASSERT_TRUE(run({4, 64, 256}, alias_shared, out).ok());
    for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(out[i], 0x01010101u * i + i);
}

TEST_F(CudaLanguage, TypesHaveTheSizesOfAGpu) {
    auto* out = array<unsigned>(8);
    ASSERT_TRUE(run({1, 1}, aligned_types, out).ok());
    const unsigned wanted[] = {16, 1204, 1616, 1616, 1616, 404, 404, 9};
    for (int i = 0; i < 8; ++i) EXPECT_EQ(out[i], wanted[i]) << i;
}

}  // namespace
}  // namespace penstock::cuda_language
