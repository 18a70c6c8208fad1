// Goal: whatever order lanes run in, meetings of blocks and of parts of warps give what a plain
// simulation gives, while lanes yield at random and leave at random.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "backend/cpu/sanitizer_fibers.h"
#include "backend/cpu/test_device.h"
#include "penstock/language/cuda.h"

namespace penstock::backend::cpu {
namespace {

struct Round {
    enum Kind : unsigned {
        kBlockCount,
        kBlockRotate,
        kShuffle,
        kBallot,
        kYield,
        kLeave,
        kKinds
    } kind;
    unsigned shift;
    uint32_t part;  // lanes of a warp that meet apart from the rest of it
    uint64_t salt;
};

__host__ __device__ inline uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t x = (a ^ b * 0x9e3779b97f4a7c15u) + 0x632be59bd9b4e019u;
    x ^= x >> 29;
    return x * 0xbf58476d1ce4e5b9u ^ x >> 32;
}
__host__ __device__ inline bool leaves(const Round& round, unsigned rank) {
    return mix(round.salt, rank) % 12 == 0;
}

__global__ void play(const Round* rounds, unsigned round_count, uint64_t* results) {
    PENSTOCK_DYNAMIC_SHARED(uint64_t, shared);
    unsigned rank = threadIdx.x, lane = rank % 32, count = blockDim.x;
    uint64_t value = rank;
    for (unsigned i = 0; i < round_count; ++i) {
        const Round& round = rounds[i];
        uint32_t mask = (round.part >> lane & 1) != 0 ? round.part : ~round.part;
        uint64_t got = 0;
        switch (round.kind) {
            case Round::kBlockCount:
                got = static_cast<uint64_t>(__syncthreads_count(value % 2 == 0));
                break;
            case Round::kBlockRotate:
                __syncthreads();
                if (rank == 0) {
                    for (unsigned j = 0; j < count; ++j) shared[j] = 0;
                }
                __syncthreads();
                shared[rank] = value;
                __syncthreads();
                got = shared[(rank + round.shift) % count];
                break;
            case Round::kShuffle:
                got = __shfl_sync(mask, value, static_cast<int>(lane + round.shift));
                break;
            case Round::kBallot:
                got = __ballot_sync(mask, value % 3 == 0);
                break;
            case Round::kYield:
                for (uint64_t j = mix(round.salt, rank) % 3; j > 0; --j) {
                    language::wait_step(&got, 0, 0);
                }
                break;
            default:
                if (rank != 0 && leaves(round, rank)) {
                    results[rank] = value;
                    return;
                }
        }
        value = mix(value, got);
    }
    results[rank] = value;
}
PENSTOCK_KERNEL(play)

std::vector<uint64_t> simulate(const std::vector<Round>& rounds, unsigned count) {
    std::vector<uint64_t> value(count);
    std::vector<bool> here(count, true);
    for (unsigned rank = 0; rank < count; ++rank) value[rank] = rank;
    for (const Round& round : rounds) {
        std::vector<uint64_t> before = value;
        uint64_t even = 0;
        for (unsigned rank = 0; rank < count; ++rank) even += here[rank] && before[rank] % 2 == 0;
        for (unsigned rank = 0; rank < count; ++rank) {
            if (!here[rank]) continue;
            unsigned lane = rank % 32, first = rank - lane;
            uint32_t mask = (round.part >> lane & 1) != 0 ? round.part : ~round.part;
            uint64_t got = 0;
            if (round.kind == Round::kBlockCount) {
                got = even;
            } else if (round.kind == Round::kBlockRotate) {
                unsigned from = (rank + round.shift) % count;
                got = here[from] ? before[from] : 0;
            } else if (round.kind == Round::kShuffle) {
                unsigned from = (lane + round.shift) % 32;
                bool takes_part = (mask >> from & 1) != 0 && first + from < count &&
                                  here[first + from];
                got = before[takes_part ? first + from : rank];
            } else if (round.kind == Round::kBallot) {
                for (unsigned other = 0; other < 32 && first + other < count; ++other) {
                    bool votes = (mask >> other & 1) != 0 && here[first + other];
                    if (votes && before[first + other] % 3 == 0) got |= uint64_t{1} << other;
                }
            }
            if (round.kind != Round::kLeave || rank == 0 || !leaves(round, rank)) {
                value[rank] = mix(before[rank], got);
            }
        }
        for (unsigned rank = 1; rank < count; ++rank) {
            if (round.kind == Round::kLeave && leaves(round, rank)) here[rank] = false;
        }
    }
    return value;
}

TEST(LanesRandom, AgreeWithASimulation) {
    TestDevice device({.permits = 2});
    for (unsigned seed = 1; seed <= (kThreadSanitizer ? 10u : 200u); ++seed) {
        std::mt19937_64 random(seed);
        const unsigned counts[] = {1, 7, 32, 50, 64, 200, 512};
        unsigned count = counts[random() % (kThreadSanitizer ? 5 : 7)];
        auto* rounds = device.array<Round>(60);
        auto* results = device.array<uint64_t>(count);
        for (unsigned i = 0; i < 60; ++i) {
            auto kind = static_cast<Round::Kind>(random() % Round::kKinds);
            rounds[i] = {kind, static_cast<unsigned>(random() % 64),
                         static_cast<uint32_t>(random()), random()};
        }
        LaunchShape shape{1, count, count * sizeof(uint64_t)};
        PENSTOCK_EXPECT_OK(device.run(shape, play, rounds, 60u, results));
        std::vector<uint64_t> expected = simulate({rounds, rounds + 60}, count);
        ASSERT_EQ(std::vector<uint64_t>(results, results + count), expected)
            << "seed " << seed << ", " << count << " lanes; " << device->diagnosis();
        device->free(rounds);
        device->free(results);
    }
}

}  // namespace
}  // namespace penstock::backend::cpu
