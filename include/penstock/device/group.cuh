// The groups that make a call together: a block or a warp, divided into the teams that do the work.
//
// A *team* runs the one algorithm of the device library (device/read.cuh). It is a warp on a GPU,
// or a single lane that works for all calling lanes. Callers use the names `Block` and `OneWarp`.
// On a GPU every warp of the block is a team and takes its part of a request. On the CPU backend
// the last lane to arrive does all of it (Solo), which costs one switch per lane. The GPU's forms
// also run there, with all lanes (Warps, Lanes), where tests ask for it.
//
// Block: all lanes of the block call with the same arguments; none may have exited. OneWarp: all
// lanes of the warp that have not exited call with the same arguments; other warps need not. All
// calling lanes get the same result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "penstock/abi/limits.h"
#include "penstock/abi/qualifiers.h"
#include "penstock/language/cuda.h"

namespace penstock::device {

constexpr unsigned kWarpSize = 32;
constexpr unsigned kResultSizeMax = 64;  // bytes of a result that one lane passes to its block

// Copies bytes with all lanes of a warp: 16 at a time where both ends agree modulo 16.
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

// A team of one lane that works on up to `Pages` pages. Solo works for its block while the block's
// other lanes are parked.
template <unsigned Pages>
struct LoneTeam {
    static constexpr unsigned kWidth = 1;
    static constexpr unsigned kPagesPerLane = Pages;
    // No other team uses the call's place (abi/readahead.h) during the call.
    static constexpr bool kAlone = true;
    PENSTOCK_DEVICE unsigned lane() const { return 0; }
    PENSTOCK_DEVICE unsigned lanes() const { return 1; }
    PENSTOCK_DEVICE void sync() const {}
    PENSTOCK_DEVICE bool any(bool mine) const { return mine; }
    template <class T>
    PENSTOCK_DEVICE T broadcast(T value, unsigned) const {
        return value;
    }
    // Returns the sum of `mine` over the lanes before this one; `total` gets the sum over all.
    // `mine` is at most kPagesPerLane.
    PENSTOCK_DEVICE unsigned count_before(unsigned mine, unsigned& total) const {
        total = mine;
        return 0;
    }
    PENSTOCK_DEVICE unsigned lowest(unsigned mine) const { return mine; }
    // Returns the bits that any lane has set.
    PENSTOCK_DEVICE uint64_t unite(uint64_t mine) const { return mine; }
    PENSTOCK_DEVICE void copy(std::byte* to, const std::byte* from, size_t size) const {
        __builtin_memcpy(to, from, size);
    }
    PENSTOCK_DEVICE void zero(std::byte* to, size_t size) const { __builtin_memset(to, 0, size); }
    // Prefetches words that the team will read in turn. Without it a single lane would wait for
    // each cache line separately.
    PENSTOCK_DEVICE void fetch([[maybe_unused]] const uint64_t* words,
                               [[maybe_unused]] uint64_t count) const {
#ifndef __NVCC__
        constexpr uint64_t kLineWords = 8;
        for (uint64_t i = 0; i < count; i += kLineWords) __builtin_prefetch(words + i, 1);
        if (count > 1) __builtin_prefetch(words + count - 1, 1);
#endif
    }
};
using Solo = LoneTeam<limits::kBatchPagesMax>;

// A team of the 32 lanes of a warp. It has fewer lanes in the last warp of an odd block, or where
// lanes have exited; the missing lanes are not counted.
class Warp {
public:
    static constexpr unsigned kWidth = kWarpSize;
    static constexpr unsigned kPagesPerLane = 1;
    static constexpr bool kAlone = false;  // other warps of the block use its place

    // Makes a team of the first `lanes` lanes.
    PENSTOCK_DEVICE Warp(unsigned lane, unsigned lanes)
        : lane_(lane), lanes_(lanes), mask_(lanes == kWarpSize ? ~0u : (1u << lanes) - 1) {}
    // Makes a team of the lanes in `mask`, one of which is `lane`.
    PENSTOCK_DEVICE static Warp of_mask(unsigned lane, unsigned mask) {
        Warp warp(static_cast<unsigned>(__popc(mask & ((1u << lane) - 1))),
                  static_cast<unsigned>(__popc(mask)));
        warp.mask_ = mask;
        return warp;
    }
    PENSTOCK_DEVICE unsigned lane() const { return lane_; }
    PENSTOCK_DEVICE unsigned lanes() const { return lanes_; }
    PENSTOCK_DEVICE void sync() const { __syncwarp(mask_); }
    PENSTOCK_DEVICE bool any(bool mine) const { return __any_sync(mask_, mine) != 0; }
    template <class T>
    PENSTOCK_DEVICE T broadcast(T value, unsigned from) const {
        const auto lane = static_cast<int>(bit_of(from));
        if constexpr (std::is_pointer_v<T>) {
            const auto word = reinterpret_cast<unsigned long long>(value);
            return reinterpret_cast<T>(__shfl_sync(mask_, word, lane));
        } else {
            return __shfl_sync(mask_, value, lane);
        }
    }
    PENSTOCK_DEVICE unsigned count_before(unsigned mine, unsigned& total) const {
        const unsigned votes = __ballot_sync(mask_, mine != 0);
        total = static_cast<unsigned>(__popc(votes));
        return static_cast<unsigned>(__popc(votes & ((1u << bit_of(lane_)) - 1)));
    }
    // Returns the lowest of the lanes' values.
    PENSTOCK_DEVICE unsigned lowest(unsigned mine) const {
        for (unsigned step = kWarpSize / 2; step > 0; step /= 2) {
            const unsigned other = broadcast(mine, lane_ ^ step);
            if ((lane_ ^ step) < lanes_ && other < mine) mine = other;
        }
        return broadcast(mine, 0);
    }
    PENSTOCK_DEVICE uint64_t unite(uint64_t mine) const {
        for (unsigned step = kWarpSize / 2; step > 0; step /= 2) {
            const uint64_t other = broadcast(mine, lane_ ^ step);
            if ((lane_ ^ step) < lanes_) mine |= other;
        }
        return broadcast(mine, 0);
    }
    PENSTOCK_DEVICE void copy(std::byte* to, const std::byte* from, size_t size) const {
        copy_by_lanes(lane_, lanes_, to, from, size);
    }
    PENSTOCK_DEVICE void zero(std::byte* to, size_t size) const {
        // Frames begin at multiples of 16, and so do most of the gaps that are left in them.
        const size_t head = (16 - (reinterpret_cast<uintptr_t>(to) & 15)) & 15;
        for (size_t i = lane_; i < head && i < size; i += lanes_) to[i] = std::byte{0};
        if (size <= head) return;
        struct alignas(16) Quad {
            uint64_t low, high;
        };
        auto* quads = reinterpret_cast<Quad*>(to + head);
        const size_t count = (size - head) / sizeof(Quad);
        for (size_t i = lane_; i < count; i += lanes_) quads[i] = Quad{0, 0};
        for (size_t i = head + count * sizeof(Quad) + lane_; i < size; i += lanes_)
            to[i] = std::byte{0};
    }
    // Does nothing: the lanes load at the same time.
    PENSTOCK_DEVICE void fetch(const uint64_t*, uint64_t) const {}

private:
    // Returns the index in the warp of a lane of the team. Returns `lane` if it is beyond the last.
    PENSTOCK_DEVICE unsigned bit_of(unsigned lane) const {
        if ((mask_ & (mask_ + 1)) == 0 || lane >= lanes_) return lane;
        unsigned rest = mask_;
        for (; lane > 0; --lane) rest &= rest - 1;
        return static_cast<unsigned>(__ffs(static_cast<int>(rest))) - 1;
    }

    unsigned lane_, lanes_, mask_;
};

// Returns the number of the calling thread's block, over all dimensions of the grid.
PENSTOCK_DEVICE inline uint32_t number_of_block() {
    return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
}

// The position of the calling thread among the lanes of its warp, and of the warp in the block.
struct WarpSeat {
    unsigned warp, warps, lane, lanes;
};
PENSTOCK_DEVICE inline WarpSeat warp_seat() {
    const unsigned rank = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const unsigned size = blockDim.x * blockDim.y * blockDim.z;
    const unsigned warp = rank / kWarpSize, warps = (size + kWarpSize - 1) / kWarpSize;
    return {warp, warps, rank % kWarpSize, warp + 1 < warps ? kWarpSize : size - warp * kWarpSize};
}

// Returns a number that no two resident warps share, as far as the hardware tells.
PENSTOCK_DEVICE inline unsigned place_of_warp() {
#ifdef __NVCC__
    unsigned multiprocessor, warp;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
    return multiprocessor * limits::kWarpsPerMultiprocessor + warp;
#else
    return language::current_block->permit * limits::kWarpsPerBlock +
           language::current_lane->warp_index;
#endif
}

// The block as a group of all its warps.
class Warps {
public:
    PENSTOCK_DEVICE Warps() {
        const WarpSeat seat = warp_seat();
        warp_ = seat.warp;
        warps_ = seat.warps;
        lane_ = seat.lane;
        lanes_ = seat.lanes;
    }
    PENSTOCK_DEVICE Warp team() const { return Warp(lane_, lanes_); }
    PENSTOCK_DEVICE unsigned teams() const { return warps_; }

    // Runs `begin(team, place, count)` in the first team, then `work(team, index, count, begun)` in
    // every team of the group, then `end(begun)` in one lane. Returns the lowest result of `work`
    // in all lanes. `begin` and `work` return values that are uniform over their team. `end`
    // captures nothing. `place` is a number that no two resident groups share, as far as the
    // hardware tells.
    template <class Begin, class Work, class End>
    PENSTOCK_DEVICE int64_t divide(Begin begin, Work work, End end) const {
        using Begun = decltype(begin(team(), 0u, 0u));
        __shared__ long long lowest;
        __shared__ Begun begun;
        __syncthreads();
        require_all();
        if (warp_ == 0) {
            const Begun mine = begin(team(), place(), warps_);
            if (lane_ == 0) {
                lowest = INT64_MAX;
                begun = mine;
            }
        }
        __syncthreads();
        const Begun common = begun;
        const long long mine = work(team(), warp_, warps_, common);
        if (lane_ == 0) atomicMin(&lowest, mine);
        __syncthreads();
        if (warp_ == 0 && lane_ == 0) end(common);
        return lowest;
    }

    // Runs `work()` in one lane and returns its result in all lanes.
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

    // Returns the `place` of divide(), for the calling warp.
    PENSTOCK_DEVICE static unsigned place() { return place_of_warp(); }

    // A barrier: after it the effects of `end` of a divide() are complete.
    PENSTOCK_DEVICE void meet() const { __syncthreads(); }

private:
    // Stops the block if a thread has returned. That thread would be missing from its warp's
    // shuffles, which is undefined on a GPU, so the CPU backend reports it. Each thread checks its
    // neighbour: if one is missing, its neighbour finds it.
    PENSTOCK_DEVICE void require_all() const {
#ifndef __NVCC__
        const unsigned rank = warp_ * kWarpSize + lane_;
        const unsigned neighbour = rank + 1 < language::current_block->lane_count ? rank + 1 : 0;
        if (!language::present(neighbour)) {
            language::stop_block("a GPU thread returned before a call that its whole block makes");
        }
#endif
    }

    unsigned warp_, warps_, lane_, lanes_;
};

// The calling warp as a group of its lanes.
class Lanes {
public:
    PENSTOCK_DEVICE static unsigned teams() { return 1; }

    // As Warps::divide, with one team.
    template <class Begin, class Work, class End>
    PENSTOCK_DEVICE int64_t divide(Begin begin, Work work, End end) const {
        const Warp warp = team();
        warp.sync();
        const auto begun = begin(warp, place(), 1u);
        const int64_t result = work(warp, 0u, 1u, begun);
        warp.sync();  // no lane reads what `begun` points to any more
        if (warp.lane() == 0) end(begun);
        return warp.broadcast(result, 0);
    }

    // Runs `work()` in one lane and returns its result in all lanes.
    template <class Work>
    PENSTOCK_DEVICE auto once(Work work) const {
        using Result = decltype(work());
        static_assert(sizeof(Result) <= kResultSizeMax);
        constexpr size_t kWords = (sizeof(Result) + 7) / 8;
        uint64_t words[kWords] = {};
        const Warp warp = team();
        warp.sync();
        if (warp.lane() == 0) {
            const Result result = work();
            __builtin_memcpy(words, &result, sizeof(Result));
        }
        for (size_t i = 0; i < kWords; ++i) words[i] = warp.broadcast(words[i], 0);
        warp.sync();  // shuffles order no memory
        Result result;
        __builtin_memcpy(&result, words, sizeof(Result));
        return result;
    }

    PENSTOCK_DEVICE static unsigned place() { return place_of_warp(); }
    PENSTOCK_DEVICE void meet() const { team().sync(); }

private:
    // Returns the lanes that have not exited, determined anew at each call. A vote neither waits
    // for exited lanes nor counts them.
    PENSTOCK_DEVICE static Warp team() {
        const WarpSeat seat = warp_seat();
        const unsigned all = seat.lanes == kWarpSize ? ~0u : (1u << seat.lanes) - 1;
        return Warp::of_mask(seat.lane, __ballot_sync(all, 1));
    }
};

#ifdef __NVCC__
using Block = Warps;
using OneWarp = Lanes;
#else
// The block as a single lane that works for it: the last lane to arrive.
class Block {
public:
    static unsigned teams() { return 1; }
    template <class Begin, class Work, class End>
    int64_t divide(Begin begin, Work work, End /*end*/) const {
        return once([begin, work] {
            const auto begun = begin(Solo{}, place(), 1u);
            const int64_t result = work(Solo{}, 0u, 1u, begun);
            End{}(begun);
            return result;
        });
    }
    static unsigned place() { return language::current_block->permit * limits::kWarpsPerBlock; }
    void meet() const {}  // once() has ended for all
    template <class Work>
    auto once(Work work) const {
        using Result = decltype(work());
        static_assert(sizeof(Result) <= sizeof(language::Block::result));
        if (language::block_gather("penstock call")) {
            run<Work>(words_of(work), std::make_index_sequence<kWords<Work> >());
            language::block_release();
        }
        Result result;
        __builtin_memcpy(&result, language::current_block->result, sizeof(Result));
        return result;
    }

private:
    // The captures of `work`, passed word by word as separate arguments. So the compiler builds no
    // closure in memory before it knows that this lane is the last; the other lanes would do that
    // in vain. Requires that no capture is shorter than a word: padding would lie in memory, and
    // each lane would touch two more lines of its stack (4 % of reads of 64 KiB by 32 threads).
    template <class Work>
    static constexpr size_t kWords = (sizeof(Work) + 7) / 8;
    template <class Work>
    struct Words {
        uint64_t word[kWords<Work>];
    };
    template <class Work>
    static Words<Work> words_of(const Work& work) {
        Words<Work> words{};
        __builtin_memcpy(&words, &work, sizeof work);
        return words;
    }
    template <class Work, size_t... kIndex>
    static void run(const Words<Work>& words, std::index_sequence<kIndex...>) {
        run_words<Work>(words.word[kIndex]...);
    }

    // A separate function, so that waiting lanes put nothing of `work` on their stacks.
    template <class Work, class... Word>
    PENSTOCK_NOINLINE static void run_words(Word... word) {
        static_assert(std::is_trivially_copyable_v<Work>);
        const Words<Work> words{word...};
        union {
            Words<Work> empty;
            Work work;
        } room{};
        __builtin_memcpy(static_cast<void*>(&room.work), &words, sizeof(Work));
        const auto result = room.work();
        __builtin_memcpy(language::current_block->result, &result, sizeof(result));
    }
};

// The calling warp as a single lane that works for it: the last lane to arrive.
class OneWarp {
public:
    static unsigned teams() { return 1; }
    template <class Begin, class Work, class End>
    int64_t divide(Begin begin, Work work, End /*end*/) const {
        return once([begin, work] {
            const auto begun = begin(Solo{}, place(), 1u);
            const int64_t result = work(Solo{}, 0u, 1u, begun);
            End{}(begun);
            return result;
        });
    }
    template <class Work>
    auto once(Work work) const {
        using Result = decltype(work());
        static_assert(sizeof(Result) <= kResultSizeMax);
        Result result;
        language::deposit(reinterpret_cast<uintptr_t>(&result));
        language::warp_rendezvous(~0u, run<Work>, &work, "penstock warp call");
        return result;
    }
    static unsigned place() { return place_of_warp(); }
    void meet() const {}

private:
    // Stores the result with each of the waiting lanes.
    template <class Work>
    PENSTOCK_NOINLINE static void run(void* work) {
        const auto result = (*static_cast<Work*>(work))();
        const unsigned first = language::current_lane->warp_index * kWarpSize;
        for (uint32_t rest = language::warp_present_mask(); rest != 0; rest &= rest - 1) {
            const uint64_t to = language::value_of(first +
                                                   static_cast<unsigned>(__builtin_ctz(rest)));
            __builtin_memcpy(reinterpret_cast<void*>(to), &result, sizeof(result));
        }
    }
};
#endif

}  // namespace penstock::device
