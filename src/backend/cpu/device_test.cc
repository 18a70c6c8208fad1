// Goal: streams keep their order, permits bound what is resident, and whatever goes wrong ends in
// an error in time.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "backend/cpu/sanitizer_fibers.h"
#include "backend/cpu/test_device.h"
#include "penstock/language/cuda.h"

namespace penstock::backend::cpu {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

uint64_t load(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
void store(uint64_t* word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

__device__ void wait_for(const uint64_t* word, uint64_t value) {
    for (uint32_t turn = 0;; ++turn) {
        uint64_t seen = load(word);
        if (seen == value) return;
        language::wait_step(word, seen, turn);
    }
}

__global__ void append(uint64_t* log, unsigned* count, uint64_t value) {
    if (threadIdx.x == 0) log[atomicAdd(count, 1)] = value;
}
PENSTOCK_KERNEL(append)

// gate[0] is waited for, gate[1] says that the block runs.
__global__ void wait_then_append(uint64_t* gate, uint64_t* log, unsigned* count, uint64_t value) {
    store(gate + 1, 1);
    wait_for(gate, 1);
    if (threadIdx.x == 0) log[atomicAdd(count, 1)] = value;
}
PENSTOCK_KERNEL(wait_then_append)

// ---- streams

TEST(Streams, OperationsRunInOrder) {
    for (unsigned permits : {1u, 2u, 4u}) {
        TestDevice device({.permits = permits});
        auto* log = device.array<uint64_t>(1000);
        auto* count = device.array<unsigned>(1);
        auto* staging = device.array<uint64_t>(1 << 16);
        for (uint64_t i = 0; i < 300; ++i) {
            if (i % 3 == 0) {
                PENSTOCK_EXPECT_OK(device.start(device.stream(), {1, 32}, append, log, count, i));
            } else if (i % 3 == 1) {
                // Both sizes: done by the caller, and by the copy engine.
                size_t size = i % 2 == 0 ? 64 : sizeof(uint64_t) << 16;
                PENSTOCK_EXPECT_OK(
                    device->fill(device.stream(), staging, static_cast<uint8_t>(i), size));
            } else {
                PENSTOCK_EXPECT_OK(device->copy(device.stream(), log + 500 + i, staging, 8));
            }
        }
        PENSTOCK_EXPECT_OK(device->synchronize(device.stream(), soon()));
        for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(log[i], i * 3);
        for (uint64_t i = 2; i < 300; i += 3) {
            EXPECT_EQ(log[500 + i], ((i - 1) & 0xff) * 0x0101010101010101u) << i;
        }
        bool idle = false;
        PENSTOCK_EXPECT_OK(device->query(device.stream(), &idle));
        EXPECT_TRUE(idle);
        EXPECT_FALSE(device->kernels_in_flight());
    }
}

TEST(Streams, GreaterPriorityGoesFirst) {
    TestDevice device({.permits = 1});
    auto* log = device.array<uint64_t>(100);
    auto* count = device.array<unsigned>(1);
    auto* gate = device.array<uint64_t>(2);
    StreamId low = 0, high = 0;
    PENSTOCK_EXPECT_OK(device->create_stream(-1, &low));
    PENSTOCK_EXPECT_OK(device->create_stream(5, &high));
    PENSTOCK_EXPECT_OK(
        device.start(device.stream(), {1, 1}, wait_then_append, gate, log, count, 0u));
    auto* started = gate + 1;
    while (load(started) == 0) device->wait_changed(started, 0, milliseconds(1));
    PENSTOCK_EXPECT_OK(device.start(low, {3, 1}, append, log, count, 1u));
    PENSTOCK_EXPECT_OK(device.start(high, {3, 1}, append, log, count, 2u));
    EXPECT_TRUE(device->kernels_in_flight());
    store(gate, 1);
    device->notify(gate);
    PENSTOCK_EXPECT_OK(device->synchronize(low, soon()));
    PENSTOCK_EXPECT_OK(device->synchronize(high, soon()));
    std::vector<uint64_t> order(log, log + 7);
    EXPECT_EQ(order, (std::vector<uint64_t>{0, 2, 2, 2, 1, 1, 1}));
    PENSTOCK_EXPECT_OK(device->destroy_stream(low));
    EXPECT_EQ(device->synchronize(low, soon()).error_number(), EINVAL);
}

TEST(Streams, ValuesAreWrittenBehindCopies) {
    TestDevice device;
    auto* to = device.array<uint64_t>(1 << 18);
    std::vector<uint64_t> from(1 << 18, 7);
    auto* flag = device.array<uint64_t>(1);
    PENSTOCK_EXPECT_OK(device->copy(device.stream(), to, from.data(), from.size() * 8));
    PENSTOCK_EXPECT_OK(device->write_value(device.stream(), flag, 1));
    while (load(flag) == 0) device->wait_changed(flag, 0, milliseconds(100));
    EXPECT_EQ(to[(1 << 18) - 1], 7u);
    PENSTOCK_EXPECT_OK(device->synchronize(device.stream(), soon()));
}

TEST(Streams, SynchronizeGivesUpAtItsDeadline) {
    TestDevice device;
    auto* words = device.array<uint64_t>(3);
    auto* count = device.array<unsigned>(1);
    PENSTOCK_EXPECT_OK(
        device.start(device.stream(), {1, 1}, wait_then_append, words, words + 2, count, 1u));
    Status status = device->synchronize(device.stream(), steady_clock::now() + milliseconds(20));
    EXPECT_EQ(status.error_number(), ETIMEDOUT);
    store(words, 1);
    PENSTOCK_EXPECT_OK(device->synchronize(device.stream(), soon()));
}

TEST(Streams, TheLinkModelPacesCopies) {
    TestDevice device({.permits = 1, .link_latency_us = 2000, .link_bandwidth_gbs = 1});
    EXPECT_TRUE(device->properties().simulated_link);
    auto* to = device.array<char>(16 << 20);
    std::vector<char> from(16 << 20, 'x');
    auto start = steady_clock::now();
    PENSTOCK_EXPECT_OK(device->copy(device.stream(), to, from.data(), from.size()));
    PENSTOCK_EXPECT_OK(device->synchronize(device.stream(), soon()));
    std::chrono::duration<double> took = steady_clock::now() - start;
    EXPECT_GE(took.count(), 0.0187);  // 2 ms and 16 MiB at 1 GB/s
    EXPECT_EQ(to[12345678], 'x');
}

// ---- launches that are refused

__global__ void not_registered() {}

TEST(Launch, WhatCannotRunIsRefused) {
    TestDevice device;
    auto* log = device.array<uint64_t>(1);
    auto* count = device.array<unsigned>(1);
    EXPECT_EQ(device.run({1, 1025}, append, log, count, 1u).error_number(), EINVAL);
    EXPECT_EQ(device.run({1, {32, 32, 2}}, append, log, count, 1u).error_number(), EINVAL);
    EXPECT_EQ(device.run({1, 0}, append, log, count, 1u).error_number(), EINVAL);
    EXPECT_EQ(device.run({0, 1}, append, log, count, 1u).error_number(), EINVAL);
    EXPECT_EQ(device.run({1, 1, 1 << 20}, append, log, count, 1u).error_number(), EINVAL);
    EXPECT_EQ(device.run({1, 1}, not_registered).error_number(), EINVAL);
    EXPECT_EQ(device->launch(99, request_of({1, 1}, append, log, count, 1u)).error_number(),
              EINVAL);
    EXPECT_EQ(*count, 0u);
}

// ---- permits

struct Residency {
    unsigned resident, resident_max, permits_seen, total;
};

__global__ void observe(Residency* r) {
    if (threadIdx.x == 0) {
        unsigned resident = atomicAdd(&r->resident, 1) + 1;
        atomicMax(&r->resident_max, resident);
        atomicOr(&r->permits_seen, 1u << language::current_block->permit);
        atomicAdd(&r->total, 1);
        __nanosleep(20000);
    }
    __syncthreads();
    if (threadIdx.x == 0) atomicSub(&r->resident, 1);
}
PENSTOCK_KERNEL(observe)

TEST(Permits, BoundTheResidentBlocks) {
    for (unsigned permits : {1u, 2u, 5u}) {
        TestDevice device({.permits = permits});
        auto* r = device.array<Residency>(1);
        PENSTOCK_EXPECT_OK(device.run({200, 8}, observe, r));
        EXPECT_EQ(r->total, 200u);
        EXPECT_LE(r->resident_max, permits);
        EXPECT_LT(r->permits_seen, 1u << permits);
    }
}

__global__ void open_gate(uint64_t* gate) {
    store(gate, 1);
    language::notify(gate);
}
PENSTOCK_KERNEL(open_gate)

// Two kernels in two streams that wait for each other need two permits.
TEST(Permits, ResidentBlocksRunAtTheSameTime) {
    TestDevice device({.permits = 2});
    auto* words = device.array<uint64_t>(4);
    auto* count = device.array<unsigned>(1);
    StreamId other = 0;
    PENSTOCK_EXPECT_OK(device->create_stream(0, &other));
    PENSTOCK_EXPECT_OK(
        device.start(device.stream(), {1, 32}, wait_then_append, words, words + 2, count, 1u));
    PENSTOCK_EXPECT_OK(device.start(other, {1, 1}, open_gate, words));
    PENSTOCK_EXPECT_OK(device->synchronize(other, soon()));
    PENSTOCK_EXPECT_OK(device->synchronize(device.stream(), soon()));
}

// ---- waits

__global__ void ping(uint64_t* words, uint64_t rounds) {
    // Each lane waits for its own word; the host answers all of them.
    uint64_t* own = words + threadIdx.x * 2;
    for (uint64_t round = 1; round <= rounds; ++round) {
        store(own, round);
        language::notify(own);
        wait_for(own + 1, round);
    }
    __syncthreads();
}
PENSTOCK_KERNEL(ping)

TEST(Waits, LanesWaitForTheHostAndTheHostForLanes) {
    constexpr unsigned kLanes = 5;
    constexpr uint64_t kRounds = 200;
    TestDevice device;
    auto* words = device.array<uint64_t>(2 * kLanes);
    PENSTOCK_EXPECT_OK(device.start(device.stream(), {1, kLanes}, ping, words, kRounds));
    std::vector<uint64_t> answered(kLanes);
    while (*std::min_element(answered.begin(), answered.end()) < kRounds) {
        for (unsigned i = 0; i < kLanes; ++i) {
            uint64_t asked = load(words + 2 * i);
            if (asked == answered[i]) {
                device->wait_changed(words + 2 * i, asked, milliseconds(1));
                continue;
            }
            store(words + 2 * i + 1, asked);
            device->notify(words + 2 * i + 1);
            answered[i] = asked;
        }
    }
    PENSTOCK_EXPECT_OK(device->synchronize(device.stream(), soon()));
}

__global__ void wait_for_help(const uint64_t* word) { wait_for(word, 10); }
PENSTOCK_KERNEL(wait_for_help)

TEST(Waits, ABlockThatWaitsHelps) {
    TestDevice device({.permits = 1});
    struct Context {
        uint64_t* word;
        std::atomic<unsigned> calls{0};
    } context;
    context.word = device.array<uint64_t>(1);
    auto step = [](void* argument, unsigned /*permit*/, bool /*waits*/) {
        auto* c = static_cast<Context*>(argument);
        EXPECT_EQ(language::current_lane, nullptr);
        c->calls.fetch_add(1);
        if (load(c->word) < 10) {
            store(c->word, load(c->word) + 1);
            return true;
        }
        return false;
    };
    PENSTOCK_EXPECT_OK(device->add_help({step, &context}));
    PENSTOCK_EXPECT_OK(device.run({1, 64}, wait_for_help, context.word));
    EXPECT_EQ(context.calls.load(), 10u);
    device->remove_help(&context);
    *context.word = 0;
    PENSTOCK_EXPECT_OK(device.start(device.stream(), {1, 64}, wait_for_help, context.word));
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_EQ(context.calls.load(), 10u);
    store(context.word, 10);
    device->notify(context.word);
    PENSTOCK_EXPECT_OK(device->synchronize(device.stream(), soon()));
    for (unsigned i = 0; i < kHelpsMax; ++i) PENSTOCK_EXPECT_OK(device->add_help({step, &context}));
    EXPECT_EQ(device->add_help({step, &context}).error_number(), ENOSPC);
    device->remove_help(&context);
}

// ---- the watchdog, and other ends

std::atomic<bool> release_stuck{false};

__global__ void get_stuck(unsigned victim, uint64_t* after) {
    __syncthreads();
    if (blockIdx.x == victim && threadIdx.x == 3) {
        while (!release_stuck.load(std::memory_order_relaxed)) {
        }
    }
    __syncthreads();
    if (blockIdx.x == victim) *after = 1;
}
PENSTOCK_KERNEL(get_stuck)

TEST(Watchdog, ABlockThatStandsStillFailsItsLaunch) {
    for (unsigned permits : {1u, 2u}) {
        release_stuck = false;
        TestDevice device({.permits = permits, .watchdog_seconds = 0.2});
        auto* word = device.array<uint64_t>(1);
        Status status = device.run({20, 32}, get_stuck, 2u, word);
        EXPECT_EQ(status.error_number(), ETIMEDOUT) << status.message();
        std::string text = device->diagnosis();
        EXPECT_NE(text.find("kernel program/get_stuck, block (2,0,0)"), std::string::npos) << text;
        EXPECT_NE(text.find("device_test.cc"), std::string::npos) << text;
        // The permit is there again, and the block that was given up ends at its next barrier.
        PENSTOCK_EXPECT_OK(device.run({20, 32}, get_stuck, 99u, word));
        auto start = steady_clock::now();
        device.close();
        EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(5));
        release_stuck = true;
        std::this_thread::sleep_for(milliseconds(50));
    }
}

__global__ void keep_waiting(const uint64_t* word) {
    if (threadIdx.x == 0) wait_for(word, 1);
    __syncthreads();
}
PENSTOCK_KERNEL(keep_waiting)

TEST(Watchdog, WaitingIsNotStandingStill) {
    TestDevice device({.permits = 2, .watchdog_seconds = 0.3});
    auto* word = device.array<uint64_t>(1);
    PENSTOCK_EXPECT_OK(device.start(device.stream(), {2, 32}, keep_waiting, word));
    std::this_thread::sleep_for(milliseconds(800));
    store(word, 1);
    device->notify(word);
    PENSTOCK_EXPECT_OK(device->synchronize(device.stream(), soon()));
}

TEST(Abort, BlocksStopAtTheirNextWait) {
    TestDevice device({.permits = 2});
    auto* word = device.array<uint64_t>(1);
    PENSTOCK_EXPECT_OK(device.start(device.stream(), {10, 32}, keep_waiting, word));
    PENSTOCK_EXPECT_OK(device.start(device.stream(), {10, 32}, keep_waiting, word));
    StreamId other = 0;
    PENSTOCK_EXPECT_OK(device->create_stream(1, &other));
    PENSTOCK_EXPECT_OK(device.start(other, {10, 32}, keep_waiting, word));
    std::this_thread::sleep_for(milliseconds(10));
    device->abort({EIO, "pread", "the disk is gone"});
    EXPECT_EQ(device->synchronize(device.stream(), soon()).error_number(), EIO);
    EXPECT_EQ(device->synchronize(other, soon()).error_number(), EIO);
    EXPECT_EQ(device.run({1, 1}, keep_waiting, word).error_number(), EIO);
    EXPECT_FALSE(device->kernels_in_flight());
}

TEST(Abort, ADeviceThatIsClosedStopsItsBlocks) {
    TestDevice device({.permits = 2});
    auto* word = device.array<uint64_t>(1);
    PENSTOCK_EXPECT_OK(device.start(device.stream(), {10, 32}, keep_waiting, word));
    std::this_thread::sleep_for(milliseconds(10));
    device.close();
}

__global__ void stop_itself(uint64_t* after) {
    __syncthreads();
    if (threadIdx.x == 5 && blockIdx.x == 1) language::stop_block("out of paper");
    __syncthreads();
    if (blockIdx.x == 1) *after = 1;
}
PENSTOCK_KERNEL(stop_itself)

TEST(Stop, TheFirstErrorOfAStreamSkipsItsNextLaunches) {
    TestDevice device({.permits = 1});
    auto* words = device.array<uint64_t>(4);
    auto* count = device.array<unsigned>(1);
    PENSTOCK_EXPECT_OK(device.start(device.stream(), {3, 32}, stop_itself, words));
    PENSTOCK_EXPECT_OK(device.start(device.stream(), {1, 1}, append, words + 1, count, 9u));
    PENSTOCK_EXPECT_OK(device->write_value(device.stream(), words + 3, 5));
    Status status = device->synchronize(device.stream(), soon());
    EXPECT_EQ(status.error_number(), EFAULT);
    EXPECT_EQ(device->diagnosis(), "kernel program/stop_itself, block (1,0,0): out of paper");
    EXPECT_EQ(status.message(),
              "kernel: Bad address: the kernel stopped itself: " + device->diagnosis());
    EXPECT_EQ(words[0], 0u);
    EXPECT_EQ(*count, 0u);    // skipped
    EXPECT_EQ(words[3], 5u);  // whoever waits for a value gets it
    PENSTOCK_EXPECT_OK(device.run({1, 1}, append, words + 1, count, 9u));
    EXPECT_EQ(*count, 1u);
}

__global__ void write_to(int* address) { *address = 1; }
PENSTOCK_KERNEL(write_to)

__global__ void overflow_stack(int depth, int* out) {
    volatile int frame[64];
    frame[depth % 64] = depth;
    if (depth > 0) overflow_stack(depth - 1, out);
    *out = frame[depth % 64];
}
PENSTOCK_KERNEL(overflow_stack)

TEST(CrashDeathTest, TheKernelThatFaultedIsNamed) {
    if (kAddressSanitizer || kThreadSanitizer)
        GTEST_SKIP() << "sanitizers report faults themselves";
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    auto fault = [] {
        TestDevice device;
        (void)device.run({1, 32}, write_to, reinterpret_cast<int*>(0x40));
    };
    EXPECT_EXIT(
        fault(), testing::ExitedWithCode(1),
        "penstock: kernel program/write_to, block \\(0,0,0\\): segmentation fault at address 0x40");
    auto overflow = [] {
        TestDevice device;
        (void)device.run({1, 1}, overflow_stack, 1000000, device.array<int>(1));
    };
    EXPECT_EXIT(overflow(), testing::ExitedWithCode(1), "kernel program/overflow_stack");
}

// Past the lower end of the stack, but not as far as the next one.
__attribute__((noinline)) void fill_frame(int* out) {
    volatile unsigned char frame[66000];
    for (volatile unsigned char& byte : frame) byte = 1;
    *out = frame[0];
}

__global__ void overflow_one(int* out) {
    __syncthreads();
    if (threadIdx.x == 40) fill_frame(out);
    __syncthreads();
}
PENSTOCK_KERNEL(overflow_one)

// Beyond the first 32 stacks there are no guard pages, but a canary.
TEST(Stop, AnOverflowOfAStackIsFoundAtTheEnd) {
    if (kAddressSanitizer || kThreadSanitizer) GTEST_SKIP() << "other stack sizes";
    TestDevice device({.permits = 1});
    auto* out = device.array<int>(1);
    Status status = device.run({1, 64}, overflow_one, out);
    EXPECT_EQ(status.error_number(), EFAULT) << status.message();
    EXPECT_NE(device->diagnosis().find("overflowed its stack"), std::string::npos);
}

}  // namespace
}  // namespace penstock::backend::cpu
