// What the threads of a block on the CPU backend know together about points, so that a point that
// is not taken needs no meeting of the threads. On a GPU a barrier costs less than that.
#pragma once

#include "penstock/language/cuda.h"

#ifndef __NVCC__

namespace penstock::preemption {

// What the threads of a block on the CPU backend know together. They take turns on one CPU. The
// atomics give a thread what the one that wrote the word had seen.
class BlockPoints {
public:
    // Thread 0 calls when it begins a block, or one thread while all meet.
    void reset(bool forced) {
        __atomic_store_n(&decided_, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&forced_, forced, __ATOMIC_RELAXED);
        __atomic_store_n(&closing_, false, __ATOMIC_RELAXED);
        __atomic_store_n(&ended_, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&over_, 0, __ATOMIC_RELEASE);
    }
    // Whether blocks may leave though they need not.
    [[nodiscard]] bool forced() const { return __atomic_load_n(&forced_, __ATOMIC_RELAXED); }

    // Returns whether the block goes on at its `number`-th point without a meeting of its threads.
    // The first thread that comes there decides it with passes().
    template <class Passes>
    bool passes(uint64_t number, Passes passes) {
        if (number <= __atomic_load_n(&over_, __ATOMIC_ACQUIRE)) return true;
        if (number <= __atomic_load_n(&decided_, __ATOMIC_RELAXED)) return false;
        const bool over = passes();
        __atomic_store_n(over ? &over_ : &decided_, number, __ATOMIC_RELEASE);
        return over;
    }

    // Counts a thread that has ended. The first one decides with `closes` whether any more meet.
    // Returns whether they do not, and sets `*last` for the last one.
    template <class Closes>
    bool end(uint32_t threads, Closes closes, bool* last) {
        if (__atomic_load_n(&ended_, __ATOMIC_RELAXED) == 0)
            __atomic_store_n(&closing_, closes(), __ATOMIC_RELAXED);
        *last = __atomic_add_fetch(&ended_, 1, __ATOMIC_ACQ_REL) == threads;
        return __atomic_load_n(&closing_, __ATOMIC_RELAXED);
    }

private:
    uint64_t over_, decided_;  // points of the block, counted from Run::begin()
    uint32_t ended_;
    bool forced_, closing_;
};
inline BlockPoints& block_points() {
    __shared__ BlockPoints points;
    return points;
}

}  // namespace penstock::preemption

#endif
