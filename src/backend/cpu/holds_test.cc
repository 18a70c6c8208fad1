// Goal: a held stream goes on when its word is stored, and ends with an error when nothing will
// store it.
#include <gtest/gtest.h>

#include <cerrno>

#include "backend/cpu/test_device.h"
#include "penstock/language/cuda.h"

namespace penstock::backend::cpu {
namespace {

void store(uint64_t* word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

__global__ void set(uint64_t* word, uint64_t value) {
    if (threadIdx.x == 0) store(word, value);
}
PENSTOCK_KERNEL(set)
__global__ void copy_word(uint64_t* to, const uint64_t* from) {
    if (threadIdx.x == 0) *to = __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
PENSTOCK_KERNEL(copy_word)
__global__ void trap() { __trap(); }
PENSTOCK_KERNEL(trap)

bool is_idle(TestDevice& device, StreamId stream) {
    bool idle = true;
    PENSTOCK_EXPECT_OK(device->query(stream, &idle));
    return idle;
}

TEST(Holds, AKernelOfAnotherStreamEndsThem) {
    TestDevice device({.permits = 1});
    auto* words = device.array<uint64_t>(3);
    StreamId other = 0;
    PENSTOCK_EXPECT_OK(device->create_stream(0, &other));
    PENSTOCK_EXPECT_OK(device->hold(device.stream(), &words[0]));
    PENSTOCK_EXPECT_OK(device.start(device.stream(), {1, 1}, copy_word, &words[2], &words[1]));
    EXPECT_FALSE(is_idle(device, device.stream()));
    EXPECT_TRUE(device->kernels_in_flight());
    PENSTOCK_EXPECT_OK(device.start(other, {1, 1}, set, &words[1], 5));
    PENSTOCK_EXPECT_OK(device.start(other, {1, 1}, set, &words[0], 1));
    PENSTOCK_EXPECT_OK(device->synchronize(device.stream(), soon()));
    EXPECT_EQ(words[2], 5u);
    EXPECT_FALSE(device->kernels_in_flight());
}

TEST(Holds, AWordThatIsStoredAlreadyHoldsNothing) {
    TestDevice device;
    auto* words = device.array<uint64_t>(1);
    PENSTOCK_EXPECT_OK(device.start(device.stream(), {1, 1}, set, words, 1));
    PENSTOCK_EXPECT_OK(device->hold(device.stream(), words));
    PENSTOCK_EXPECT_OK(device->synchronize(device.stream(), soon()));
}

TEST(Holds, TheHostEndsThemWithAnError) {
    TestDevice device;
    auto* words = device.array<uint64_t>(2);
    for (uint64_t i = 0; i < 2; ++i) {
        StreamId stream = 0;
        PENSTOCK_EXPECT_OK(device->create_stream(0, &stream));
        PENSTOCK_EXPECT_OK(device->hold(stream, &words[i]));
        store(&words[i], 1);
        device->end_hold(&words[i], i == 0 ? Status{EIO, "test", "workers failed"} : Status{});
        EXPECT_EQ(device->synchronize(stream, soon()).error_number(), i == 0 ? EIO : 0);
    }
}

TEST(Holds, NothingIsHeldBehindAFailure) {
    TestDevice device;
    auto* words = device.array<uint64_t>(1);
    PENSTOCK_EXPECT_OK(device.start(device.stream(), {1, 1}, trap));
    PENSTOCK_EXPECT_OK(device->hold(device.stream(), words));
    EXPECT_EQ(device->synchronize(device.stream(), soon()).error_number(), EFAULT);
    EXPECT_FALSE(device->kernels_in_flight());
}

TEST(Holds, AnAbortEndsThem) {
    TestDevice device;
    auto* words = device.array<uint64_t>(1);
    PENSTOCK_EXPECT_OK(device->hold(device.stream(), words));
    device->abort({ECANCELED, "test", "the test ends it"});
    EXPECT_EQ(device->synchronize(device.stream(), soon()).error_number(), ECANCELED);
}

TEST(Holds, WaitingBlocksAreCounted) {
    TestDevice device({.permits = 1});
    auto* words = device.array<uint64_t>(4);
    const uint64_t* const waiting = device->waiting_blocks();
    ASSERT_NE(waiting, nullptr);
    EXPECT_EQ(__atomic_load_n(waiting, __ATOMIC_RELAXED), 0u);
    PENSTOCK_EXPECT_OK(device->hold(device.stream(), words));
    PENSTOCK_EXPECT_OK(device.start(device.stream(), {3, 1}, copy_word, &words[1], waiting));
    store(words, 1);
    device->end_hold(words, {});
    PENSTOCK_EXPECT_OK(device->synchronize(device.stream(), soon()));
    EXPECT_EQ(words[1], 0u) << "the last of three blocks is the last to write";
}

}  // namespace
}  // namespace penstock::backend::cpu
