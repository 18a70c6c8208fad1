// Tells whether a thread has given up its processor itself: for a disk, for a lock, or to sleep. A
// read that took long without such a wait lost the processor to other threads; the storage was not
// the cause.
//
// Any thread, each for itself.
#pragma once

namespace penstock::base {

// Returns whether the calling thread has waited since its last call here, or at the first call
// whether it ever has. Also returns true if the system does not count waits. Makes one system call,
// which takes 0.15 us.
[[nodiscard]] bool waited_since_asked();

}  // namespace penstock::base
