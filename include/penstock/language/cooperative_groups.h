// CUDA's cooperative groups for g++: blocks, tiles of a warp, and their collective functions.
//
// A group of up to 32 threads is a mask of lanes of one warp; it synchronizes as __syncwarp(mask)
// does. coalesced_threads() is the calling thread alone, because threads of a warp never run in
// step here; CUDA promises no more. A grid can synchronize only if it is one block, because a
// launch does not promise that all blocks are resident. Sources include <cooperative_groups.h>,
// <cooperative_groups/reduce.h>, <cooperative_groups/scan.h> or
// <cooperative_groups/memcpy_async.h>, which all include this header.
#pragma once

#ifndef __NVCC__  // nvcc has the language itself

#include <cstring>
#include <type_traits>

#include "penstock/language/cuda.h"

namespace cooperative_groups {

namespace penstock_groups {

using penstock::language::current_block;
using penstock::language::current_lane;

inline constexpr unsigned kWarpSize = 32;

inline unsigned mask_of(unsigned first, unsigned count) {
    return (count >= kWarpSize ? ~0u : (1u << count) - 1) << first;
}

inline void sync_block() {
    penstock::language::block_rendezvous(nullptr, nullptr, "cooperative_groups: block");
}
inline void sync_lanes(unsigned mask) {
    penstock::language::sync_warp("cooperative_groups: tile", mask);
}

inline unsigned long long count_of(const penstock::language::Index3& shape) {
    return static_cast<unsigned long long>(shape.x) * shape.y * shape.z;
}
inline dim3 dim_of(const penstock::language::Index3& index) {
    return dim3(index.x, index.y, index.z);
}

// One lane's part of a meeting in which one lane combines the values of all.
template <class T, class Operation>
struct Part {
    T value;
    T result;
    const Operation* operation;
};

// Which values a lane's result combines, from the lowest lane on: those of all lanes (kAll), up to
// the lane (kInclusive), or before it (kExclusive, which leaves the first result as it is).
enum class Reach { kAll, kInclusive, kExclusive };

template <class T, class Operation, Reach kReach>
struct Fold {
    void operator()(const penstock::language::WarpExchange& exchange) const {
        using Own = Part<T, Operation>;
        const auto part_of = [&](unsigned lane) -> Own& {
            return *reinterpret_cast<Own*>(static_cast<uintptr_t>(exchange.part(lane).value));
        };
        const Own* before = nullptr;
        T total{};
        exchange.for_each([&](unsigned lane) {
            Own& part = part_of(lane);
            if (kReach == Reach::kExclusive && before != nullptr) part.result = total;
            total = before == nullptr ? part.value : (*part.operation)(total, part.value);
            if (kReach == Reach::kInclusive) part.result = total;
            before = &part;
        });
        if (kReach != Reach::kAll) return;
        exchange.for_each([&](unsigned lane) { part_of(lane).result = total; });
    }
};

template <Reach kReach, class T, class Operation>
T fold(unsigned mask, const T& value, T first, const Operation& operation) {
    Part<T, Operation> part{value, first, &operation};
    penstock::language::WarpExchange exchange(mask, reinterpret_cast<uintptr_t>(&part));
    exchange.meet("cooperative_groups: fold", Fold<T, Operation, kReach>{});
    return part.result;
}

// Shuffles values of any size, eight bytes at a time. `from` is a lane of the warp.
template <class T>
T shuffle(unsigned mask, const T& value, unsigned from) {
    static_assert(std::is_trivially_copyable_v<T>, "a value that is shuffled is copied bytewise");
    T result = value;
    for (size_t i = 0; i < sizeof(T); i += sizeof(uint64_t)) {
        const size_t size = sizeof(T) - i < sizeof(uint64_t) ? sizeof(T) - i : sizeof(uint64_t);
        uint64_t word = 0;
        std::memcpy(&word, reinterpret_cast<const char*>(&value) + i, size);
        penstock::language::WarpExchange exchange(mask, word, from);
        word = exchange.meet("cooperative_groups: shfl", penstock::language::Shuffle{});
        std::memcpy(reinterpret_cast<char*>(&result) + i, &word, size);
    }
    return result;
}

}  // namespace penstock_groups

// A group of a kind that is known only at run time.
class thread_group {
public:
    void sync() const {
        is_block_ ? penstock_groups::sync_block() : penstock_groups::sync_lanes(mask_);
    }
    [[nodiscard]] unsigned long long size() const {
        return is_block_ ? penstock_groups::current_block->lane_count
                         : static_cast<unsigned>(__builtin_popcount(mask_));
    }
    [[nodiscard]] unsigned long long num_threads() const { return size(); }
    [[nodiscard]] unsigned long long thread_rank() const {
        if (is_block_) return penstock_groups::current_lane->rank;
        const unsigned before = (1u << penstock_groups::current_lane->lane_index) - 1;
        return static_cast<unsigned>(__builtin_popcount(mask_ & before));
    }
    [[nodiscard]] bool is_valid() const { return true; }
    [[nodiscard]] unsigned penstock_mask() const { return mask_; }

protected:
    struct WholeBlock {};
    explicit thread_group(WholeBlock) : is_block_(true) {}
    explicit thread_group(unsigned mask) : mask_(mask) {}
    friend thread_group tiled_partition(const thread_group& parent, unsigned size);

    unsigned mask_ = 0;
    bool is_block_ = false;
};

class thread_block : public thread_group {
public:
    thread_block() : thread_group(WholeBlock{}) {}

    static void sync() { penstock_groups::sync_block(); }
    static unsigned size() { return penstock_groups::current_block->lane_count; }
    static unsigned num_threads() { return size(); }
    static unsigned thread_rank() { return penstock_groups::current_lane->rank; }
    static dim3 group_index() {
        return penstock_groups::dim_of(penstock_groups::current_block->block_index);
    }
    static dim3 thread_index() {
        return penstock_groups::dim_of(penstock_groups::current_lane->thread_index);
    }
    static dim3 group_dim() {
        return penstock_groups::dim_of(penstock_groups::current_block->block_dimensions);
    }
    static dim3 dim_threads() { return group_dim(); }

    // The barrier in two halves; here the second half does all of it.
    struct arrival_token {};
    static arrival_token barrier_arrive() { return {}; }
    static void barrier_wait(arrival_token) { sync(); }
};
inline thread_block this_thread_block() { return {}; }

class grid_group {
public:
    static unsigned long long num_blocks() {
        return penstock_groups::count_of(penstock_groups::current_block->grid_dimensions);
    }
    static unsigned long long size() { return num_blocks() * thread_block::size(); }
    static unsigned long long num_threads() { return size(); }
    static unsigned long long block_rank() {
        const auto& block = *penstock_groups::current_block;
        return block.block_index.x +
               block.grid_dimensions.x *
                   (block.block_index.y +
                    static_cast<unsigned long long>(block.grid_dimensions.y) * block.block_index.z);
    }
    static unsigned long long thread_rank() {
        return block_rank() * thread_block::size() + thread_block::thread_rank();
    }
    static dim3 group_dim() {
        return penstock_groups::dim_of(penstock_groups::current_block->grid_dimensions);
    }
    static dim3 dim_blocks() { return group_dim(); }
    static dim3 block_index() { return thread_block::group_index(); }
    static bool is_valid() { return num_blocks() == 1; }
    static void sync() {
        if (!is_valid()) {
            penstock::language::stop_block(
                "grid_group::sync: blocks of one launch cannot wait for each other; "
                "launch one block, or one kernel for each step");
        }
        penstock_groups::sync_block();
    }
};
inline grid_group this_grid() { return {}; }

// The functions that tiles and coalesced groups share.
class penstock_lanes : public thread_group {
public:
    static constexpr unsigned kAbsent = ~0u;

    [[nodiscard]] unsigned size() const { return static_cast<unsigned>(thread_group::size()); }
    [[nodiscard]] unsigned num_threads() const { return size(); }
    [[nodiscard]] unsigned thread_rank() const {
        return static_cast<unsigned>(thread_group::thread_rank());
    }
    [[nodiscard]] unsigned meta_group_rank() const { return meta_rank_; }
    [[nodiscard]] unsigned meta_group_size() const { return meta_size_; }

    template <class T>
    T shfl(const T& value, int rank) const {
        return penstock_groups::shuffle(mask_, value,
                                        lane_of(static_cast<unsigned>(rank) % size()));
    }
    template <class T>
    T shfl_up(const T& value, unsigned delta) const {
        const unsigned rank = thread_rank();
        return penstock_groups::shuffle(mask_, value, lane_of(rank >= delta ? rank - delta : rank));
    }
    template <class T>
    T shfl_down(const T& value, unsigned delta) const {
        const unsigned rank = thread_rank();
        const bool inside = delta < size() - rank;
        return penstock_groups::shuffle(mask_, value, lane_of(inside ? rank + delta : rank));
    }
    template <class T>
    T shfl_xor(const T& value, unsigned lane_mask) const {
        const unsigned rank = thread_rank(), from = rank ^ lane_mask;
        return penstock_groups::shuffle(mask_, value, lane_of(from < size() ? from : rank));
    }

    [[nodiscard]] unsigned ballot(int predicate) const {
        return ranks_of(
            penstock::language::ballot("cooperative_groups: ballot", mask_, predicate != 0));
    }
    [[nodiscard]] int any(int predicate) const { return ballot(predicate) != 0 ? 1 : 0; }
    [[nodiscard]] int all(int predicate) const { return ballot(predicate == 0) == 0 ? 1 : 0; }
    template <class T>
    unsigned match_any(T value) const {
        return ranks_of(
            penstock::language::match_any("cooperative_groups: match_any", mask_, value));
    }
    template <class T>
    unsigned match_all(T value, int& predicate) const {
        return ranks_of(penstock::language::match_all("cooperative_groups: match_all", mask_, value,
                                                      &predicate));
    }

protected:
    penstock_lanes(unsigned mask, unsigned meta_rank, unsigned meta_size)
        : thread_group(mask), meta_rank_(meta_rank), meta_size_(meta_size) {}

private:
    // Returns the lane of the warp that has a rank. ranks_of() does the reverse for a lane mask.
    [[nodiscard]] unsigned lane_of(unsigned rank) const {
        unsigned rest = mask_;
        for (; rank > 0; --rank) rest &= rest - 1;
        return static_cast<unsigned>(__builtin_ctz(rest));
    }
    [[nodiscard]] unsigned ranks_of(unsigned lanes) const {
        unsigned result = 0, rank = 0;
        for (unsigned rest = mask_; rest != 0; rest &= rest - 1, ++rank) {
            if ((lanes & rest & (~rest + 1)) != 0) result |= 1u << rank;
        }
        return result;
    }

    unsigned meta_rank_, meta_size_;
};

class coalesced_group : public penstock_lanes {
public:
    explicit coalesced_group(unsigned mask, unsigned meta_rank = 0, unsigned meta_size = 1)
        : penstock_lanes(mask, meta_rank, meta_size) {}
};
inline coalesced_group coalesced_threads() { return coalesced_group(__activemask()); }

// Storage that tiles of several warps would need. Such tiles are refused here.
template <unsigned kSize>
struct block_tile_memory {
    static_assert(kSize == 0, "penstock: a tile has 1, 2, 4, 8, 16 or 32 threads");
};

template <unsigned kSize, class Parent = void>
class thread_block_tile;

template <unsigned kSize>
class thread_block_tile<kSize, void> : public penstock_lanes {
    static_assert(kSize <= 32 && (kSize & (kSize - 1)) == 0,
                  "penstock: a tile has 1, 2, 4, 8, 16 or 32 threads");

public:
    static constexpr unsigned size() { return kSize; }
    static constexpr unsigned num_threads() { return kSize; }
    static unsigned thread_rank() { return penstock_groups::current_lane->rank % kSize; }

protected:
    thread_block_tile(unsigned meta_rank, unsigned meta_size)
        : penstock_lanes(penstock_groups::mask_of(
                             penstock_groups::current_lane->lane_index & ~(kSize - 1), kSize),
                         meta_rank, meta_size) {}
};

template <unsigned kSize, class Parent>
class thread_block_tile : public thread_block_tile<kSize, void> {
public:
    thread_block_tile(unsigned meta_rank, unsigned meta_size)
        : thread_block_tile<kSize, void>(meta_rank, meta_size) {}
};

// Divides a group into tiles, or a tile into smaller ones.
template <unsigned kSize>
thread_block_tile<kSize, thread_block> tiled_partition(const thread_block& block) {
    return {block.thread_rank() / kSize, (block.size() + kSize - 1) / kSize};
}
template <unsigned kSize, unsigned kParentSize, class Parent>
auto tiled_partition(const thread_block_tile<kParentSize, Parent>& parent) {
    static_assert(kSize <= kParentSize, "a tile is no larger than the one it is cut from");
    return thread_block_tile<kSize, thread_block_tile<kParentSize, Parent>>(
        parent.thread_rank() / kSize, kParentSize / kSize);
}
inline thread_group tiled_partition(const thread_group& parent, unsigned size) {
    const auto rank = static_cast<unsigned>(parent.thread_rank());
    const unsigned lane = penstock_groups::current_lane->lane_index;
    if (parent.is_block_) return thread_group(penstock_groups::mask_of(lane & ~(size - 1), size));
    unsigned mask = 0, place = 0;
    for (unsigned rest = parent.mask_; rest != 0; rest &= rest - 1, ++place) {
        if (place / size == rank / size) mask |= rest & (~rest + 1);
    }
    return thread_group(mask);
}

// Divides a tile or a coalesced group by a label or a predicate of its threads. By label, the part
// with the lowest lane is the first. By predicate, part 1 has the threads for which it holds.
template <class Label>
coalesced_group labeled_partition(const penstock_lanes& group, Label label) {
    const unsigned own = group.penstock_mask();
    const unsigned mask = penstock::language::match_any("cooperative_groups: partition", own,
                                                        label);
    const auto leader = static_cast<unsigned>(__builtin_ctz(mask));
    const unsigned leaders = penstock::language::ballot(
        "cooperative_groups: leaders", own, leader == penstock_groups::current_lane->lane_index);
    return coalesced_group(
        mask, static_cast<unsigned>(__builtin_popcount(leaders & ((1u << leader) - 1))),
        static_cast<unsigned>(__builtin_popcount(leaders)));
}
inline coalesced_group binary_partition(const penstock_lanes& group, bool predicate) {
    const unsigned own = group.penstock_mask();
    const unsigned mask = penstock::language::match_any("cooperative_groups: partition", own,
                                                        predicate ? 1 : 0);
    if (mask == own) return coalesced_group(own);
    return coalesced_group(mask, predicate ? 1 : 0, 2);
}

template <class Group>
void sync(const Group& group) {
    group.sync();
}

// ---- operations for reduce and the scans

template <class T = void>
struct plus {
    T operator()(const T& a, const T& b) const { return static_cast<T>(a + b); }
};
template <class T = void>
struct less {
    T operator()(const T& a, const T& b) const { return b < a ? b : a; }
};
template <class T = void>
struct greater {
    T operator()(const T& a, const T& b) const { return a < b ? b : a; }
};
template <class T = void>
struct bit_and {
    T operator()(const T& a, const T& b) const { return static_cast<T>(a & b); }
};
template <class T = void>
struct bit_or {
    T operator()(const T& a, const T& b) const { return static_cast<T>(a | b); }
};
template <class T = void>
struct bit_xor {
    T operator()(const T& a, const T& b) const { return static_cast<T>(a ^ b); }
};

// Combines the values of all threads of a tile or coalesced group, from rank 0 on.
template <class T, class Operation>
T reduce(const penstock_lanes& group, const T& value, const Operation& operation) {
    return penstock_groups::fold<penstock_groups::Reach::kAll>(group.penstock_mask(), value, value,
                                                               operation);
}
template <class T, class Operation>
T inclusive_scan(const penstock_lanes& group, const T& value, const Operation& operation) {
    return penstock_groups::fold<penstock_groups::Reach::kInclusive>(group.penstock_mask(), value,
                                                                     value, operation);
}
template <class T>
T inclusive_scan(const penstock_lanes& group, const T& value) {
    return inclusive_scan(group, value, plus<T>());
}
template <class T, class Operation>
T exclusive_scan(const penstock_lanes& group, const T& value, const Operation& operation) {
    return penstock_groups::fold<penstock_groups::Reach::kExclusive>(group.penstock_mask(), value,
                                                                     T{}, operation);
}
template <class T>
T exclusive_scan(const penstock_lanes& group, const T& value) {
    return exclusive_scan(group, value, plus<T>());
}

// ---- copies by a whole group: done when memcpy_async returns, visible after wait

template <class Group>
void memcpy_async(const Group& group, void* to, const void* from, size_t size) {
    const size_t step = group.size();
    for (size_t i = group.thread_rank(); i < size; i += step)
        static_cast<char*>(to)[i] = static_cast<const char*>(from)[i];
}
template <class Group, class T>
void memcpy_async(const Group& group, T* to, size_t to_count, const T* from, size_t from_count) {
    memcpy_async(group, static_cast<void*>(to), static_cast<const void*>(from),
                 (to_count < from_count ? to_count : from_count) * sizeof(T));
}
template <class Group>
void wait(const Group& group) {
    group.sync();
}
template <unsigned kStages, class Group>
void wait_prior(const Group& group) {
    group.sync();
}

// Calls `function` in one thread of the group.
template <class Group, class Function, class... Arguments>
void invoke_one(const Group& group, Function&& function, Arguments&&... arguments) {
    if (group.thread_rank() == 0)
        static_cast<Function&&>(function)(static_cast<Arguments&&>(arguments)...);
}

}  // namespace cooperative_groups

#endif  // __NVCC__
