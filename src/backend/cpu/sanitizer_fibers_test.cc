// Goal: the sanitizers see kernels as a GPU programmer wants: a missing barrier is a race, although
// all lanes share one OS thread, and shared memory has an end. The tests that find nothing wrong
// are all the others.
#include "backend/cpu/sanitizer_fibers.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/cpu/test_device.h"
#include "penstock/language/cuda.h"

namespace penstock::backend::cpu {
namespace {

__global__ void pass_on(unsigned* words, bool with_barrier) {
    words[threadIdx.x] = threadIdx.x;
    if (with_barrier) __syncthreads();
    words[64 + threadIdx.x] = words[(threadIdx.x + 1) % blockDim.x];
}
PENSTOCK_KERNEL(pass_on)

__global__ void pass_on_in_warp(unsigned* words, unsigned mask) {
    words[threadIdx.x] = threadIdx.x;
    if ((mask >> threadIdx.x & 1) != 0) __syncwarp(mask);
    words[64 + threadIdx.x] = words[(threadIdx.x + 1) % blockDim.x];
}
PENSTOCK_KERNEL(pass_on_in_warp)

__global__ void write_past_shared(unsigned count) {
    PENSTOCK_DYNAMIC_SHARED(unsigned, words);
    for (unsigned i = 0; i < count; ++i) words[i] = i;
}
PENSTOCK_KERNEL(write_past_shared)

template <class... Parameters, class... Arguments>
[[noreturn]] void run_and_exit(const LaunchShape& shape, void (*kernel)(Parameters...),
                               Arguments... arguments) {
    TestDevice device;
    auto* words = device.array<unsigned>(128);
    Status status;
    if constexpr (sizeof...(Parameters) == sizeof...(Arguments)) {
        status = device.run(shape, kernel, arguments...);
    } else {
        status = device.run(shape, kernel, words, arguments...);
    }
    std::exit(status.ok() ? 0 : 1);
}

class SanitizerDeathTest : public testing::Test {
protected:
    void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
    static constexpr int kRaceExitCode = 66;  // TSan's
};

TEST_F(SanitizerDeathTest, AMissingBarrierIsARace) {
    if (!kThreadSanitizer) GTEST_SKIP() << "needs TSan";
    auto exits_with = [](int code) { return testing::ExitedWithCode(code); };
    EXPECT_EXIT(run_and_exit({1, 32}, pass_on, true), exits_with(0), "");
    EXPECT_EXIT(run_and_exit({1, 32}, pass_on, false), exits_with(kRaceExitCode), "data race");
    EXPECT_EXIT(run_and_exit({1, 32}, pass_on_in_warp, ~0u), exits_with(0), "");
    EXPECT_EXIT(run_and_exit({1, 32}, pass_on_in_warp, 0xffffu), exits_with(kRaceExitCode),
                "data race");
}

TEST_F(SanitizerDeathTest, SharedMemoryHasAnEnd) {
    if (!kAddressSanitizer) GTEST_SKIP() << "needs ASan";
    EXPECT_EXIT(run_and_exit({1, 1, 64}, write_past_shared, 16u), testing::ExitedWithCode(0), "");
    EXPECT_DEATH(run_and_exit({1, 1, 64}, write_past_shared, 17u), "use-after-poison");
}

}  // namespace
}  // namespace penstock::backend::cpu
