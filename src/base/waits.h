// Whether a thread has given up its processor of itself: for a disk, for a lock, to sleep. A read
// that took long and did not wait was kept off the processor by others; storage had no part in it.
//
// Any thread, each for itself.
#pragma once

namespace penstock::base {

// Whether the calling thread has waited since it last asked here, or, the first time, ever. True
// too where the system does not count. One system call, 0.15 us.
[[nodiscard]] bool waited_since_asked();

}  // namespace penstock::base
