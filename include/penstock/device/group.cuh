// Who makes a call together: a block, cut into the teams that do the work.
//
// A *team* runs the one algorithm of the device library (device/file.cuh): a warp on a GPU, or a
// single lane that works for its whole block. `Block` is what callers name. On a GPU every warp of
// the block is a team and takes its part of a request; on the CPU backend the last lane to arrive
// does all of it (Solo), which costs one switch per lane. The warp form also runs on the CPU
// backend, lanes and all (Warps), where tests ask for it.
//
// All lanes of the block call with the same arguments, none may have exited; the result is the same
// in all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/abi/limits.h"
#include "penstock/abi/qualifiers.h"
#include "penstock/language/cuda.h"

namespace penstock::device {

constexpr unsigned kWarpSize = 32;
constexpr unsigned kResultSizeMax = 64;  // bytes that one lane can tell its block

// Copies bytes by all lanes of a warp: 16 at a time where both ends agree modulo 16.
PENSTOCK_DEVICE inline void copy_by_lanes(unsigned lane, unsigned lanes, std::byte* to,
                                          const std::byte* from, size_t size) {
    struct alignas(16) Quad {
        uint64_t low, high;
    };
    size_t done = 0;
    if ((reinterpret_cast<uintptr_t>(to) & 15) == (reinterpret_cast<uintptr_t>(from) & 15)) {
        const size_t head = (16 - (reinterpret_cast<uintptr_t>(to) & 15)) & 15;
        if (head < size) {
            for (size_t i = lane; i < head; i += lanes) to[i] = from[i];
            const size_t quads = (size - head) / 16;
            auto* target = reinterpret_cast<Quad*>(to + head);
            const auto* source = reinterpret_cast<const Quad*>(from + head);
            size_t i = lane;
            // Four loads in flight before the first store.
            for (; i + 3 * lanes < quads; i += 4 * lanes) {
                const Quad a = source[i], b = source[i + lanes], c = source[i + 2 * lanes],
                           d = source[i + 3 * lanes];
                target[i] = a;
                target[i + lanes] = b;
                target[i + 2 * lanes] = c;
                target[i + 3 * lanes] = d;
            }
            for (; i < quads; i += lanes) target[i] = source[i];
            done = head + quads * 16;
        }
    }
    for (size_t i = done + lane; i < size; i += lanes) to[i] = from[i];
}

// A team of one, with up to `Pages` pages in hand. Solo stands for its block while the block's
// other lanes are parked.
template <unsigned Pages>
struct LoneTeam {
    static constexpr unsigned kWidth = 1;
    static constexpr unsigned kPagesPerLane = Pages;
    PENSTOCK_DEVICE unsigned lane() const { return 0; }
    PENSTOCK_DEVICE unsigned lanes() const { return 1; }
    PENSTOCK_DEVICE void sync() const {}
    PENSTOCK_DEVICE bool any(bool mine) const { return mine; }
    template <class T>
    PENSTOCK_DEVICE T broadcast(T value, unsigned) const {
        return value;
    }
    // Sum of `mine` over the lanes before this one; `total`: over all. `mine` is at most
    // kPagesPerLane.
    PENSTOCK_DEVICE unsigned count_before(unsigned mine, unsigned& total) const {
        total = mine;
        return 0;
    }
    PENSTOCK_DEVICE unsigned lowest(unsigned mine) const { return mine; }
    PENSTOCK_DEVICE void copy(std::byte* to, const std::byte* from, size_t size) const {
        __builtin_memcpy(to, from, size);
    }
};
using Solo = LoneTeam<limits::kBatchPagesMax>;

// A team of the 32 lanes of a warp (fewer in the last warp of an odd block).
class Warp {
public:
    static constexpr unsigned kWidth = kWarpSize;
    static constexpr unsigned kPagesPerLane = 1;

    PENSTOCK_DEVICE Warp(unsigned lane, unsigned lanes)
        : lane_(lane), lanes_(lanes), mask_(lanes == kWarpSize ? ~0u : (1u << lanes) - 1) {}
    PENSTOCK_DEVICE unsigned lane() const { return lane_; }
    PENSTOCK_DEVICE unsigned lanes() const { return lanes_; }
    PENSTOCK_DEVICE void sync() const { __syncwarp(mask_); }
    PENSTOCK_DEVICE bool any(bool mine) const { return __any_sync(mask_, mine) != 0; }
    template <class T>
    PENSTOCK_DEVICE T broadcast(T value, unsigned from) const {
        return __shfl_sync(mask_, value, static_cast<int>(from));
    }
    PENSTOCK_DEVICE unsigned count_before(unsigned mine, unsigned& total) const {
        const unsigned votes = __ballot_sync(mask_, mine != 0);
        total = static_cast<unsigned>(__popc(votes));
        return static_cast<unsigned>(__popc(votes & ((1u << lane_) - 1)));
    }
    // The lowest of the lanes' values.
    PENSTOCK_DEVICE unsigned lowest(unsigned mine) const {
        for (unsigned step = kWarpSize / 2; step > 0; step /= 2) {
            const unsigned other = __shfl_xor_sync(mask_, mine, static_cast<int>(step));
            if ((lane_ ^ step) < lanes_ && other < mine) mine = other;
        }
        return broadcast(mine, 0);
    }
    PENSTOCK_DEVICE void copy(std::byte* to, const std::byte* from, size_t size) const {
        copy_by_lanes(lane_, lanes_, to, from, size);
    }

private:
    unsigned lane_, lanes_, mask_;
};

// The block, as the warps it has.
class Warps {
public:
    PENSTOCK_DEVICE Warps() {
        const unsigned rank = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        const unsigned size = blockDim.x * blockDim.y * blockDim.z;
        warp_ = rank / kWarpSize;
        warps_ = (size + kWarpSize - 1) / kWarpSize;
        lane_ = rank % kWarpSize;
        lanes_ = warp_ + 1 < warps_ ? kWarpSize : size - warp_ * kWarpSize;
    }
    PENSTOCK_DEVICE Warp team() const { return Warp(lane_, lanes_); }

    // Runs `work(team, index, count)` in every team of the block; the lowest of their results, in
    // all lanes. `work` returns a value that is uniform over its team.
    template <class Work>
    PENSTOCK_DEVICE int64_t divide(Work work) const {
        __shared__ long long lowest;
        __syncthreads();
        require_all();
        if (warp_ == 0 && lane_ == 0) lowest = INT64_MAX;
        __syncthreads();
        const long long mine = work(team(), warp_, warps_);
        if (lane_ == 0) atomicMin(&lowest, mine);
        __syncthreads();
        return lowest;
    }

    // Runs `work()` in one lane; its result in all.
    template <class Work>
    PENSTOCK_DEVICE auto once(Work work) const {
        using Result = decltype(work());
        __shared__ __align__(16) unsigned char shared[kResultSizeMax];
        static_assert(sizeof(Result) <= kResultSizeMax);
        __syncthreads();
        require_all();
        if (warp_ == 0 && lane_ == 0) {
            const Result result = work();
            __builtin_memcpy(shared, &result, sizeof(Result));
        }
        __syncthreads();
        Result result;
        __builtin_memcpy(&result, shared, sizeof(Result));
        return result;
    }

private:
    // A thread that has returned would be missing from its warp's shuffles: on a GPU anything may
    // happen then, so the CPU backend says it. Each thread looks at its neighbour: where one is
    // missing, somebody sees it.
    PENSTOCK_DEVICE void require_all() const {
#ifndef __CUDACC__
        const unsigned rank = warp_ * kWarpSize + lane_;
        const unsigned neighbour = rank + 1 < language::current_block->lane_count ? rank + 1 : 0;
        if (!language::present(neighbour)) {
            language::stop_block("a GPU thread returned before a call that its whole block makes");
        }
#endif
    }

    unsigned warp_, warps_, lane_, lanes_;
};

#ifdef __CUDACC__
using Block = Warps;
#else
// The block, as the one lane that works for it: the last to arrive.
class Block {
public:
    template <class Work>
    int64_t divide(Work work) const {
        return once([work] { return int64_t{work(Solo{}, 0u, 1u)}; });
    }
    template <class Work>
    auto once(Work work) const {
        using Result = decltype(work());
        static_assert(sizeof(Result) <= sizeof(language::Block::result));
        if (language::block_gather("penstock call")) {
            run(work);
            language::block_release();
        }
        Result result;
        __builtin_memcpy(&result, language::current_block->result, sizeof(Result));
        return result;
    }

private:
    // Apart and by value, so that lanes that only wait put nothing of `work` on their stacks.
    template <class Work>
    __noinline__ static void run(Work work) {
        const auto result = work();
        __builtin_memcpy(language::current_block->result, &result, sizeof(result));
    }
};
#endif

}  // namespace penstock::device
