// Reports reads of the program to the service, which reads ahead of them.
//
// The kernel reads ahead of reads that continue forward. A descriptor is reported if its reads have
// equal distances with gaps between them, or from its first read on if access programs of an
// earlier run are known (PENSTOCK_SIGNATURE). The program's threads only write into a ring. A
// thread of this library takes the entries out; it starts with the first entry. An entry that it is
// too slow for is lost. It announces by the program's own descriptor: if that gets another meaning
// meanwhile, a part of another file is announced in vain.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <atomic>

namespace penstock::preload {

// Switches observing on.
void begin_observing();
// The caller is the child of a fork: it has no observer.
void forget_observations();

// What is known of the reads by one descriptor. Threads that share it mix their reads: then a
// pattern is seen late, or not at all. Positions are only guessed at: nothing else depends on them.
struct Watch {
    std::atomic<int64_t> position{kInOrder};  // where a seek led; after it, reads are in order
    std::atomic<int64_t> next{0};             // the offset behind the last read at an offset
    std::atomic<int64_t> gap{0};              // the last distance from `next` to another offset
    std::atomic<unsigned> repeats{0}, state{kLearning}, meaning{0};
    std::atomic<unsigned> rest{0};  // next reads that are not reported

    static constexpr int64_t kInOrder = -1;
    static constexpr unsigned kLearning = 0, kReported = 1, kIgnored = 2;
};
inline constexpr int kWatchedMax = 4096;  // descriptors from 0
inline std::atomic<bool> observing{false};
extern Watch watches[kWatchedMax];
void observe_other(int fd, Watch& watch, int64_t offset, ssize_t size);

// Reports a read that moved `size` bytes at `offset`; -1: at the position of the descriptor, which
// is then behind them. Leaves errno. Cost: a few instructions.
inline void observe_read(int fd, off_t offset, ssize_t size) {
    if (!observing.load(std::memory_order_relaxed) || size <= 0) return;
    if (static_cast<unsigned>(fd) >= static_cast<unsigned>(kWatchedMax)) return;
    Watch& watch = watches[fd];
    const bool learns = watch.state.load(std::memory_order_relaxed) == Watch::kLearning;
    if (offset < 0) {
        offset = watch.position.load(std::memory_order_relaxed);
        if (offset == Watch::kInOrder && learns) return;
        watch.position.store(learns ? Watch::kInOrder : offset + size, std::memory_order_relaxed);
    } else if (offset == watch.next.load(std::memory_order_relaxed) && learns) {
        watch.next.store(offset + size, std::memory_order_relaxed);
        watch.repeats.store(0, std::memory_order_relaxed);
        return;
    }
    observe_other(fd, watch, offset, size);
}

// Reports where a seek has led.
void observe_position(int fd, off_t position);
// Reports that the program declares its reads random (posix_fadvise), or takes that back.
void observe_advice(int fd, bool random);
// Reports that a descriptor gets another meaning.
void observe_meaning(int fd);

}  // namespace penstock::preload
