// Goal: every word of the CUDA language that language/cuda.h gives means what it means on a GPU.
#include "penstock/language/cuda.h"

#include <gtest/gtest.h>

#include <vector>

#include "backend/cpu/sanitizer_fibers.h"
#include "backend/cpu/test_device.h"

namespace penstock::backend::cpu {
namespace {

// ---- who am I

__global__ void __launch_bounds__(1024) write_indices(uint3* threads, uint3* blocks, dim3* shapes) {
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned rank = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned i = block * blockDim.x * blockDim.y * blockDim.z + rank;
    threads[i] = threadIdx;
    blocks[i] = blockIdx;
    if (i == 0) {
        shapes[0] = gridDim;
        shapes[1] = blockDim;
    }
}
PENSTOCK_KERNEL(write_indices)

TEST(Language, EveryThreadKnowsItsPlace) {
    TestDevice device;
    Dimensions grid(3, 2, 2), block(5, 4, 3);
    size_t count = grid.count() * block.count();
    auto* threads = device.array<uint3>(count);
    auto* blocks = device.array<uint3>(count);
    auto* shapes = device.array<dim3>(2);
    PENSTOCK_EXPECT_OK(device.run({grid, block}, write_indices, threads, blocks, shapes));
    size_t i = 0;
    for (unsigned block_number = 0; block_number < grid.count(); ++block_number) {
        for (unsigned rank = 0; rank < block.count(); ++rank, ++i) {
            EXPECT_EQ(threads[i].x, rank % 5);
            EXPECT_EQ(threads[i].y, rank / 5 % 4);
            EXPECT_EQ(threads[i].z, rank / 20);
            EXPECT_EQ(blocks[i].x, block_number % 3);
            EXPECT_EQ(blocks[i].y, block_number / 3 % 2);
            EXPECT_EQ(blocks[i].z, block_number / 6);
        }
    }
    EXPECT_EQ(shapes[0].z, 2u);
    EXPECT_EQ(shapes[1].y, 4u);
}

// ---- shared memory and barriers

template <class T>
__global__ void reverse(const T* in, T* out) {
    __shared__ T tile[1024];
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
PENSTOCK_KERNEL(reverse<int>)
PENSTOCK_KERNEL(reverse<double>)

template <class T>
void check_reverse(TestDevice& device, unsigned lanes) {
    T* in = device.array<T>(lanes);
    T* out = device.array<T>(lanes);
    for (unsigned i = 0; i < lanes; ++i) in[i] = static_cast<T>(i);
    PENSTOCK_EXPECT_OK(device.run({1, lanes}, reverse<T>, in, out));
    for (unsigned i = 0; i < lanes; ++i) EXPECT_EQ(out[i], in[lanes - 1 - i]);
}

TEST(Language, SharedMemoryIsSeenBehindABarrier) {
    TestDevice device;
    for (unsigned lanes : {1u, 31u, 32u, 33u, 512u, 1024u}) {
        check_reverse<int>(device, lanes);
        check_reverse<double>(device, lanes);
    }
}

__global__ void read_shared_before_write(unsigned* poisoned) {
    __shared__ unsigned plain[16];
    PENSTOCK_DYNAMIC_SHARED(unsigned, dynamic);
    bool all = true;
    for (unsigned i = 0; i < 16; ++i)
        all = all && plain[i] == 0xcbcbcbcb && dynamic[i] == 0xcbcbcbcb;
    if (all) atomicAdd(poisoned, 1);
    for (unsigned i = 0; i < 16; ++i) plain[i] = dynamic[i] = i;
}
PENSTOCK_KERNEL(read_shared_before_write)

template <class T>
__global__ void read_shared_of_template(unsigned* poisoned) {
    __shared__ T value[4];
    unsigned char bytes[sizeof value];
    __builtin_memcpy(bytes, value, sizeof value);
    bool all = true;
    for (unsigned char byte : bytes) all = all && byte == 0xcb;
    if (all) atomicAdd(poisoned, 1);
    for (T& one : value) one = 1;
}
PENSTOCK_KERNEL(read_shared_of_template<double>)

TEST(Language, SharedMemoryIsPoisonedAtEveryStart) {
    TestDevice device({.permits = 1});
    auto* poisoned = device.array<unsigned>(1);
    PENSTOCK_EXPECT_OK(device.run({50, 1, 64}, read_shared_before_write, poisoned));
    EXPECT_EQ(*poisoned, 50u);
    *poisoned = 0;
    PENSTOCK_EXPECT_OK(device.run({50, 1}, read_shared_of_template<double>, poisoned));
    EXPECT_EQ(*poisoned, 50u);
}

__global__ void sum_in_dynamic_shared(const unsigned* in, unsigned* out) {
    PENSTOCK_DYNAMIC_SHARED(unsigned, part);
    part[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
    for (unsigned step = blockDim.x / 2; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
PENSTOCK_KERNEL(sum_in_dynamic_shared)

TEST(Language, DynamicSharedMemoryBelongsToTheBlock) {
    TestDevice device;
    auto* in = device.array<unsigned>(64 * 256);
    auto* out = device.array<unsigned>(64);
    for (unsigned i = 0; i < 64 * 256; ++i) in[i] = i;
    PENSTOCK_EXPECT_OK(device.run({64, 256, 1024}, sum_in_dynamic_shared, in, out));
    for (unsigned b = 0; b < 64; ++b) EXPECT_EQ(out[b], 256 * (b * 256) + 255 * 256 / 2);
}

__global__ void leave_early(unsigned* counts) {
    if (threadIdx.x % 3 == 0) return;
    __syncthreads();
    if (threadIdx.x % 3 == 1) return;
    int left = __syncthreads_count(1);
    __syncthreads();
    if (threadIdx.x == 2) *counts = static_cast<unsigned>(left);
}
PENSTOCK_KERNEL(leave_early)

TEST(Language, ThreadsThatReturnDoNotCountAtBarriers) {
    for (unsigned lanes : {3u, 32u, 100u, 512u}) {
        TestDevice device;
        auto* count = device.array<unsigned>(1);
        PENSTOCK_EXPECT_OK(device.run({1, lanes}, leave_early, count));
        EXPECT_EQ(*count, lanes / 3) << lanes;
    }
}

__global__ void vote_in_block(int* out) {
    bool even = threadIdx.x % 2 == 0;
    int count = __syncthreads_count(even);
    int all = __syncthreads_and(even);
    int any = __syncthreads_or(threadIdx.x == 70);
    int always = __syncthreads_and(blockDim.x == 100);
    if (threadIdx.x == 99) {
        out[0] = count;
        out[1] = all;
        out[2] = any;
        out[3] = always;
    }
}
PENSTOCK_KERNEL(vote_in_block)

TEST(Language, BlocksVote) {
    TestDevice device;
    int* out = device.array<int>(4);
    PENSTOCK_EXPECT_OK(device.run({1, 100}, vote_in_block, out));
    EXPECT_EQ(out[0], 50);
    EXPECT_EQ(out[1], 0);
    EXPECT_EQ(out[2], 1);
    EXPECT_EQ(out[3], 1);
}

// ---- warps

struct WarpResults {
    int broadcast, part, up, down, exchanged;
    unsigned votes, any, all, matches;
    double wide;
    int sum, least;
    unsigned bits;
};

__global__ void exchange(WarpResults* results) {
    unsigned lane = threadIdx.x % 32;
    int value = static_cast<int>(threadIdx.x) * 10;
    WarpResults& r = results[threadIdx.x];
    r.broadcast = __shfl_sync(0xffffffff, value, 5);
    r.part = __shfl_sync(0xffffffff, value, 1, 8);
    r.up = __shfl_up_sync(0xffffffff, value, 3);
    r.down = __shfl_down_sync(0xffffffff, value, 3, 16);
    r.exchanged = __shfl_xor_sync(0xffffffff, value, 1);
    r.votes = __ballot_sync(0xffffffff, lane % 4 == 0);
    r.any = static_cast<unsigned>(__any_sync(0xffffffff, lane == 31));
    r.all = static_cast<unsigned>(__all_sync(0xffffffff, lane < 31));
    r.matches = __match_any_sync(0xffffffff, lane / 8);
    r.wide = __shfl_sync(0xffffffff, value * 0.5, 2);
    r.sum = __reduce_add_sync(0xffffffff, value);
    r.least = __reduce_min_sync(0xffffffff, -value);
    r.bits = __reduce_or_sync(0xffffffff, 1u << lane);
}
PENSTOCK_KERNEL(exchange)

TEST(Language, WarpsExchangeValues) {
    TestDevice device;
    auto* results = device.array<WarpResults>(64);
    PENSTOCK_EXPECT_OK(device.run({1, 64}, exchange, results));
    for (int i = 0; i < 64; ++i) {
        const WarpResults& r = results[i];
        int first = i / 32 * 32, lane = i % 32;
        EXPECT_EQ(r.broadcast, (first + 5) * 10);
        EXPECT_EQ(r.part, (first + lane / 8 * 8 + 1) * 10);
        EXPECT_EQ(r.up, (lane >= 3 ? i - 3 : i) * 10);
        EXPECT_EQ(r.down, (lane % 16 < 13 ? i + 3 : i) * 10);
        EXPECT_EQ(r.exchanged, (i ^ 1) * 10);
        EXPECT_EQ(r.votes, 0x11111111u);
        EXPECT_EQ(r.any, 1u);
        EXPECT_EQ(r.all, 0u);
        EXPECT_EQ(r.matches, 0xffu << lane / 8 * 8);
        EXPECT_EQ(r.wide, (first + 2) * 5.0);
        EXPECT_EQ(r.sum, (first * 32 + 31 * 32 / 2) * 10);
        EXPECT_EQ(r.least, -(first + 31) * 10);
        EXPECT_EQ(r.bits, 0xffffffffu);
    }
}

// Halves of a warp that go different ways, and lanes that have left.
__global__ void diverge(unsigned* out) {
    unsigned lane = threadIdx.x;
    unsigned got = 0;
    if (lane < 16) {
        for (unsigned i = 0; i < 5; ++i) got += __shfl_sync(0x0000ffff, lane, 3);
    } else {
        if (lane == 20) return;
        got = __ballot_sync(0xffff0000, 1);
    }
    __syncwarp();
    out[lane] = got;
}
PENSTOCK_KERNEL(diverge)

TEST(Language, HalvesOfAWarpMeetApart) {
    TestDevice device;
    auto* out = device.array<unsigned>(32);
    PENSTOCK_EXPECT_OK(device.run({1, 32}, diverge, out));
    for (unsigned i = 0; i < 16; ++i) EXPECT_EQ(out[i], 15u);
    // Lane 20 may have left before or after the others arrived, but it never votes.
    for (unsigned i = 16; i < 32; ++i) EXPECT_EQ(out[i], i == 20 ? 0u : 0xffef0000u);
}

__global__ void meet_from_two_lines(unsigned* data) {
    if (threadIdx.x == 0) {
        *data = 7;
        __syncwarp();
    } else {
        __syncwarp();
        if (*data == 7) atomicAdd(data + 1, 1);
    }
}
PENSTOCK_KERNEL(meet_from_two_lines)

TEST(Language, AWarpMayMeetFromDifferentLines) {
    TestDevice device;
    auto* data = device.array<unsigned>(2);
    PENSTOCK_EXPECT_OK(device.run({1, 32}, meet_from_two_lines, data));
    EXPECT_EQ(data[1], 31u);
}

// ---- atomics and spinning

struct Words {
    int sum, difference, least, greatest;
    unsigned both, either, odd, wrapped, countdown;
    unsigned long long wide;
    float real;
    double precise;
};

__global__ void count_with_atomics(Words* w) {
    int rank = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(&w->sum, 1);
    atomicSub(&w->difference, 2);
    atomicMin(&w->least, -rank);
    atomicMax(&w->greatest, rank);
    atomicAnd(&w->both, ~(1u << rank % 32));
    atomicOr(&w->either, 1u << rank % 32);
    atomicXor(&w->odd, 1u);
    atomicInc(&w->wrapped, 9);
    atomicDec(&w->countdown, 9);
    atomicAdd_system(&w->wide, 1ull << 32);
    atomicAdd(&w->real, 0.5f);
    atomicAdd(&w->precise, 0.25);
    __threadfence();
}
PENSTOCK_KERNEL(count_with_atomics)

TEST(Language, AtomicsLoseNothing) {
    TestDevice device;
    auto* w = device.array<Words>(1);
    w->both = ~0u;
    PENSTOCK_EXPECT_OK(device.run({8, 128}, count_with_atomics, w));
    EXPECT_EQ(w->sum, 1024);
    EXPECT_EQ(w->difference, -2048);
    EXPECT_EQ(w->least, -1023);
    EXPECT_EQ(w->greatest, 1023);
    EXPECT_EQ(w->both, 0u);
    EXPECT_EQ(w->either, ~0u);
    EXPECT_EQ(w->odd, 0u);
    EXPECT_EQ(w->wrapped, 1024u % 10);
    EXPECT_EQ(w->countdown, 10 - 1024u % 10);
    EXPECT_EQ(w->wide, 1024ull << 32);
    EXPECT_EQ(w->real, 512.0f);
    EXPECT_EQ(w->precise, 256.0);
}

// A lock that one lane holds over a rendezvous of its warp, while other lanes spin for it.
__global__ void take_turns(unsigned* lock, unsigned* count) {
    if (threadIdx.x % 32 == 0) {
        while (atomicCAS(lock, 0u, 1u) != 0) {
        }
        __threadfence();
        unsigned seen = *count;
        __nanosleep(100);
        *count = seen + 1;
        __threadfence();
        atomicExch(lock, 0u);
    }
    __syncwarp();
}
PENSTOCK_KERNEL(take_turns)

TEST(Language, SpinLocksBetweenThreadsOfABlockEnd) {
    if (kThreadSanitizer) GTEST_SKIP() << "the lock orders by fences, which TSan does not model";
    TestDevice device;
    auto* words = device.array<unsigned>(2);
    PENSTOCK_EXPECT_OK(device.run({4, 256}, take_turns, words, words + 1));
    EXPECT_EQ(words[1], 32u);
}

// ---- bits and numbers

__global__ void use_intrinsics(unsigned long long* out) {
    int i = 0;
    out[i++] = static_cast<unsigned>(__popc(0xf0f0u) + __popcll(1ull << 40));
    out[i++] = static_cast<unsigned>(__ffs(8) * 100 + __ffsll(0) + __ffsll(1ll << 40));
    out[i++] = static_cast<unsigned>(__clz(1) * 100 + __clz(0) + __clzll(1));
    out[i++] = __brev(1u) + __brevll(2ull);
    out[i++] = __byte_perm(0x33221100, 0x77665544, 0x7531);
    out[i++] = __funnelshift_l(0x80000000u, 1u, 1) + __umulhi(1u << 31, 6);
    out[i++] = static_cast<unsigned>(max(-1, 3) + min(4u, 9u)) + max(1ull, 2ull);
    out[i++] = __float_as_uint(1.0f);
    unsigned value = 5;
    out[i++] = __ldg(&value) + static_cast<unsigned>(warpSize);
    out[i++] = __activemask() >> threadIdx.x & 1;
    long long start = clock64();
    __nanosleep(1000);
    out[i++] = clock64() > start;
    int4 v = make_int4(1, 2, 3, 4);
    out[i++] = static_cast<unsigned>(v.x + v.w) + alignof(int4) + sizeof(uint3);
}
PENSTOCK_KERNEL(use_intrinsics)

TEST(Language, Intrinsics) {
    TestDevice device;
    auto* out = device.array<unsigned long long>(16);
    PENSTOCK_EXPECT_OK(device.run({1, 1}, use_intrinsics, out));
    std::vector<unsigned long long> expected = {9,
                                                400 + 41,
                                                3100 + 32 + 63,
                                                (1ull << 31) + (1ull << 62),
                                                0x77553311,
                                                3 + 3,
                                                3 + 4 + 2,
                                                0x3f800000,
                                                37,
                                                1,
                                                1,
                                                5 + 16 + 12};
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(out[i], expected[i]) << i;
}

// ---- what goes wrong is said, not hung on

__global__ void split_barrier() {
    if (threadIdx.x < 3) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}
PENSTOCK_KERNEL(split_barrier)

__global__ void miss_warp_mates() {
    if (threadIdx.x == 1) {
        __syncthreads();
    } else {
        __syncwarp();
    }
}
PENSTOCK_KERNEL(miss_warp_mates)

__global__ void wrong_mask() {
    if (threadIdx.x == 4) __syncwarp(0xf);
}
PENSTOCK_KERNEL(wrong_mask)

__global__ void mix_kinds() {
    if (threadIdx.x == 0) {
        __syncwarp();
    } else {
        __ballot_sync(0xffffffff, 1);
    }
}
PENSTOCK_KERNEL(mix_kinds)

void expect_mismatch(void (*kernel)(), const char* text) {
    TestDevice device;
    Status status = device.run({4, 32}, kernel);
    EXPECT_EQ(status.error_number(), EDEADLK) << status.message();
    EXPECT_NE(device->diagnosis().find(text), std::string::npos) << device->diagnosis();
    // The device goes on.
    int* in = device.array<int>(32);
    PENSTOCK_EXPECT_OK(device.run({1, 32}, reverse<int>, in, in));
}

TEST(Language, ThreadsAtDifferentBarriersAreReported) {
    expect_mismatch(split_barrier, "language_test.cc");
    expect_mismatch(split_barrier, "kernel program/split_barrier, block (");
    expect_mismatch(miss_warp_mates, "__syncwarp");
    expect_mismatch(wrong_mask, "thread 4 is not in the mask 0x0000000f");
    expect_mismatch(mix_kinds, "__ballot_sync");
}

__global__ void trap_in_block(unsigned victim) {
    if (blockIdx.x == victim && threadIdx.x == 17) __trap();
    __syncthreads();
}
PENSTOCK_KERNEL(trap_in_block)

TEST(Language, TrapEndsTheLaunch) {
    TestDevice device;
    Status status = device.run({100, 64}, trap_in_block, 37u);
    EXPECT_EQ(status.error_number(), EFAULT);
    EXPECT_NE(device->diagnosis().find("kernel program/trap_in_block, block (37,0,0): __trap"),
              std::string::npos)
        << device->diagnosis();
    PENSTOCK_EXPECT_OK(device.run({100, 64}, trap_in_block, 100u));
}

__global__ void recurse(unsigned depth, unsigned* out) {
    volatile char frame[512];
    frame[0] = static_cast<char>(depth);
    if (depth == 0) {
        out[threadIdx.x] = static_cast<unsigned>(frame[0]) + threadIdx.x;
        return;
    }
    recurse(depth - 1, out);
    frame[1] = frame[0];
}
PENSTOCK_KERNEL(recurse)

TEST(Language, HalfOfAStackMayBeUsed) {
    TestDevice device;
    auto* out = device.array<unsigned>(64);
    PENSTOCK_EXPECT_OK(device.run({1, 64}, recurse, 40u, out));
}

}  // namespace
}  // namespace penstock::backend::cpu
