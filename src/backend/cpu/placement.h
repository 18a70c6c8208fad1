// Where threads of the CPU backend begin to run. Any thread.
#pragma once

#include <sched.h>

namespace penstock::backend::cpu {

// Returns the `index`-th CPU of `allowed`, counted on from its first behind its last; -1 if it is
// empty.
int cpu_at(const cpu_set_t& allowed, unsigned index);

// Moves the calling thread to the `index`-th of the CPUs that it may run on; from there the kernel
// may move it on. Without this, threads that are woken on a busy machine queue up behind each other
// on the CPU of whoever woke them, until the kernel balances its load some 50 ms later. Does
// nothing where the kernel does not let it.
void begin_on_cpu(unsigned index);

}  // namespace penstock::backend::cpu
