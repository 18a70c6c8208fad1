// Chooses the CPUs on which threads of the CPU backend begin to run. Any thread.
#pragma once

#include <sched.h>

namespace penstock::backend::cpu {

// Returns the `index`-th CPU of `allowed`, wrapping around after the last; -1 if it is empty.
int cpu_at(const cpu_set_t& allowed, unsigned index);

// Moves the calling thread to the `index`-th of the CPUs that it may run on; the kernel may move it
// again later. Otherwise threads that are woken on a busy machine queue on the CPU of the thread
// that woke them, until the kernel balances its load some 50 ms later. Does nothing if the kernel
// does not allow it.
void begin_on_cpu(unsigned index);

}  // namespace penstock::backend::cpu
