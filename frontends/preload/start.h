// The order in which this library starts in a program, and in the children that fork() makes of it.
//
// Other libraries may be initialized earlier, and call wrappers: so may the allocator while it
// initializes itself, or while it holds its locks. So what begins in a wrapper allocates nothing,
// takes no lock and says nothing. What may do so waits for this library's own initialization.
#pragma once

#include <atomic>

namespace penstock::preload {

// Begins what the environment asks for, in the first call that finds libc initialized. It is called
// when the functions are resolved, and when this library is initialized. Leaves errno.
void begin();

namespace internal {
inline std::atomic<bool> started{false};
}

// Returns whether this library is initialized: forks are noticed, and threads may be made.
inline bool has_started() { return internal::started.load(std::memory_order_relaxed); }

// The caller is the child of a fork. It has the parent's memory, one thread, and the parent's
// descriptors.
void begin_child();

}  // namespace penstock::preload
