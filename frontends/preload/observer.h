// Reports reads of the program to the service, which reads ahead of them.
//
// The kernel reads ahead of reads that continue forward. A descriptor is reported if its reads have
// equal distances with gaps between them, or from its first read on if access programs of an
// earlier run are known (PENSTOCK_SIGNATURE). The program's threads only write into a ring. A
// thread of this library, with descriptors of its own, takes the entries out; it starts with the
// first entry. An entry that the thread is too slow for is lost.
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include <atomic>

namespace penstock::preload {

// Switches observing on.
void begin_observing();
// Reports a read that moved `size` bytes at `offset`; -1: at the position of the descriptor, which
// is then behind them. Leaves errno. Cost: a few instructions.
void observe_moved(int fd, off_t offset, ssize_t size);
inline std::atomic<bool> observing{false};
inline void observe_read(int fd, off_t offset, ssize_t size) {
    if (observing.load(std::memory_order_relaxed)) observe_moved(fd, offset, size);
}
// Reports where a descriptor's position is. Positions are only guessed at: nothing else depends on
// them.
void observe_position(int fd, off_t position);
// Reports that the program declares its reads random (posix_fadvise), or takes that back.
void observe_advice(int fd, bool random);
// Reports that a descriptor gets another meaning.
void observe_meaning(int fd);

}  // namespace penstock::preload
