// Shuffles, votes and reductions: the exchange of values when threads of a warp or a block meet.
//
// Each lane stores the address of its part with deposit(). The last lane to arrive calculates every
// lane's result while the others are parked. For lanes that have exited or are not in the mask, a
// lane gets its own value (CUDA leaves it undefined). `site` is a string literal (PENSTOCK_SITE).
#pragma once

#ifndef __NVCC__  // nvcc has the language itself

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "penstock/language/runtime.h"

namespace penstock::language {

// One lane's part of an exchange, on its own stack.
struct Exchange {
    uint64_t value = 0;   // the value that it gives
    uint64_t result = 0;  // the value that it gets
    uint32_t from = 0;    // shuffles: the lane whose value it wants
};

// Calculates the results of all lanes of the warp in `mask` that have not exited, in one meeting.
class WarpExchange {
public:
    WarpExchange(uint32_t mask, uint64_t value, uint32_t from = 0)
        : mask_(mask), own_{value, value, from} {}

    // The last lane to arrive runs `combine(const WarpExchange&)`, which fills part(i).result.
    template <class Combine>
    uint64_t meet(const char* site, Combine) {
        deposit(reinterpret_cast<uintptr_t>(&own_));
        Body body = [](void* self) {
            auto* exchange = static_cast<WarpExchange*>(self);
            exchange->present_ = warp_present_mask() & exchange->mask_;
            exchange->first_rank_ = current_lane->warp_index * 32;
            Combine{}(*exchange);
        };
        warp_rendezvous(mask_, body, this, site);
        return own_.result;
    }

    [[nodiscard]] bool takes_part(unsigned lane) const {
        return lane < 32 && (present_ >> lane & 1) != 0;
    }
    [[nodiscard]] Exchange& part(unsigned lane) const {
        return *reinterpret_cast<Exchange*>(static_cast<uintptr_t>(value_of(first_rank_ + lane)));
    }
    template <class Visit>
    void for_each(Visit visit) const {
        for (uint32_t rest = present_; rest != 0; rest &= rest - 1) {
            visit(static_cast<unsigned>(__builtin_ctz(rest)));
        }
    }

private:
    uint32_t mask_;
    uint32_t present_ = 0;
    unsigned first_rank_ = 0;
    Exchange own_;
};

template <class T>
uint64_t to_word(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t),
                  "at most 8 bytes");
    uint64_t word = 0;
    std::memcpy(&word, &value, sizeof value);
    return word;
}

template <class T>
T from_word(uint64_t word) {
    T value;
    std::memcpy(&value, &word, sizeof value);
    return value;
}

inline void sync_warp(const char* site, unsigned mask = 0xffffffff) {
    warp_rendezvous(mask, nullptr, nullptr, site);
}

struct Shuffle {
    void operator()(const WarpExchange& exchange) const {
        exchange.for_each([&](unsigned lane) {
            Exchange& own = exchange.part(lane);
            if (exchange.takes_part(own.from)) own.result = exchange.part(own.from).value;
        });
    }
};

// `width` (1, 2, 4, ... 32) divides the warp into parts that shuffle separately.
template <class T>
T shuffle(const char* site, unsigned mask, T value, int source, int width = 32) {
    unsigned part = current_lane->lane_index & ~static_cast<unsigned>(width - 1);
    unsigned from = part + (static_cast<unsigned>(source) & static_cast<unsigned>(width - 1));
    return from_word<T>(WarpExchange(mask, to_word(value), from).meet(site, Shuffle{}));
}

template <class T>
T shuffle_up(const char* site, unsigned mask, T value, unsigned delta, int width = 32) {
    unsigned own = current_lane->lane_index;
    unsigned in_part = own & static_cast<unsigned>(width - 1);
    unsigned from = in_part >= delta ? own - delta : own;
    return from_word<T>(WarpExchange(mask, to_word(value), from).meet(site, Shuffle{}));
}

template <class T>
T shuffle_down(const char* site, unsigned mask, T value, unsigned delta, int width = 32) {
    unsigned own = current_lane->lane_index;
    unsigned in_part = own & static_cast<unsigned>(width - 1);
    unsigned from = delta < static_cast<unsigned>(width) - in_part ? own + delta : own;
    return from_word<T>(WarpExchange(mask, to_word(value), from).meet(site, Shuffle{}));
}

template <class T>
T shuffle_xor(const char* site, unsigned mask, T value, int lane_mask, int width = 32) {
    unsigned own = current_lane->lane_index;
    unsigned from = own ^ static_cast<unsigned>(lane_mask);
    // A lane may read from its own part and the parts before it.
    unsigned part_end = (own & ~static_cast<unsigned>(width - 1)) + static_cast<unsigned>(width);
    if (from >= part_end) from = own;
    return from_word<T>(WarpExchange(mask, to_word(value), from).meet(site, Shuffle{}));
}

struct Vote {
    void operator()(const WarpExchange& exchange) const {
        uint64_t votes = 0;
        exchange.for_each([&](unsigned lane) { votes |= exchange.part(lane).value << lane; });
        exchange.for_each([&](unsigned lane) { exchange.part(lane).result = votes; });
    }
};

inline unsigned ballot(const char* site, unsigned mask, bool predicate) {
    return static_cast<unsigned>(WarpExchange(mask, predicate).meet(site, Vote{}));
}

struct Match {
    void operator()(const WarpExchange& exchange) const {
        exchange.for_each([&](unsigned lane) {
            uint64_t same = 0;
            exchange.for_each([&](unsigned other) {
                if (exchange.part(other).value == exchange.part(lane).value)
                    same |= uint64_t{1} << other;
            });
            exchange.part(lane).result = same;
        });
    }
};

template <class T>
unsigned match_any(const char* site, unsigned mask, T value) {
    return static_cast<unsigned>(WarpExchange(mask, to_word(value)).meet(site, Match{}));
}

// Gives all participating lanes if their values are the same, else 0.
struct MatchAll {
    void operator()(const WarpExchange& exchange) const {
        uint64_t lanes = 0;
        const Exchange* first = nullptr;
        bool same = true;
        exchange.for_each([&](unsigned lane) {
            if (first == nullptr) first = &exchange.part(lane);
            same = same && exchange.part(lane).value == first->value;
            lanes |= uint64_t{1} << lane;
        });
        exchange.for_each([&](unsigned lane) { exchange.part(lane).result = same ? lanes : 0; });
    }
};

template <class T>
unsigned match_all(const char* site, unsigned mask, T value, int* predicate) {
    const auto lanes = static_cast<unsigned>(
        WarpExchange(mask, to_word(value)).meet(site, MatchAll{}));
    *predicate = lanes != 0;
    return lanes;
}

template <class T, class Operation>
struct Reduce {
    void operator()(const WarpExchange& exchange) const {
        bool first = true;
        T total{};
        exchange.for_each([&](unsigned lane) {
            T value = from_word<T>(exchange.part(lane).value);
            total = first ? value : Operation{}(total, value);
            first = false;
        });
        exchange.for_each([&](unsigned lane) { exchange.part(lane).result = to_word(total); });
    }
};

struct SumOf {
    // Unsigned: overflow wraps, as on a GPU.
    template <class T>
    T operator()(T a, T b) const {
        return static_cast<T>(static_cast<unsigned>(a) + static_cast<unsigned>(b));
    }
};
struct MinimumOf {
    template <class T>
    T operator()(T a, T b) const {
        return b < a ? b : a;
    }
};
struct MaximumOf {
    template <class T>
    T operator()(T a, T b) const {
        return a < b ? b : a;
    }
};
struct AndOf {
    unsigned operator()(unsigned a, unsigned b) const { return a & b; }
};
struct OrOf {
    unsigned operator()(unsigned a, unsigned b) const { return a | b; }
};
struct XorOf {
    unsigned operator()(unsigned a, unsigned b) const { return a ^ b; }
};

template <class Operation, class T>
T reduce(const char* site, unsigned mask, T value) {
    static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned>,
                  "CUDA reduces int and unsigned");
    return from_word<T>(WarpExchange(mask, to_word(value)).meet(site, Reduce<T, Operation>{}));
}

template <class T>
T reduce_add(const char* site, unsigned mask, T value) {
    return reduce<SumOf>(site, mask, value);
}
template <class T>
T reduce_min(const char* site, unsigned mask, T value) {
    return reduce<MinimumOf>(site, mask, value);
}
template <class T>
T reduce_max(const char* site, unsigned mask, T value) {
    return reduce<MaximumOf>(site, mask, value);
}
inline unsigned reduce_and(const char* site, unsigned mask, unsigned value) {
    return reduce<AndOf>(site, mask, value);
}
inline unsigned reduce_or(const char* site, unsigned mask, unsigned value) {
    return reduce<OrOf>(site, mask, value);
}
inline unsigned reduce_xor(const char* site, unsigned mask, unsigned value) {
    return reduce<XorOf>(site, mask, value);
}

// Returns how many threads of the block that have not exited passed a true `predicate`.
inline int block_count(bool predicate, const char* site) {
    deposit(predicate ? 1 : 0);
    Body body = [](void*) {
        uint64_t count = 0;
        unsigned lane_count = current_block->lane_count;
        for (unsigned rank = 0; rank < lane_count; ++rank) {
            if (present(rank)) count += value_of(rank);
        }
        for (unsigned rank = 0; rank < lane_count; ++rank) {
            if (present(rank)) answer(rank, count);
        }
    };
    block_rendezvous(body, nullptr, site);
    return static_cast<int>(take_answer());
}

}  // namespace penstock::language

// Returns the calling thread alone: lanes are never in step here, and code must not rely on more.
inline unsigned __activemask() { return 1u << ::penstock::language::current_lane->lane_index; }

#endif  // __NVCC__
