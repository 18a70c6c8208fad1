// System calls that the program makes past libc's functions, and whether they are seen.
//
// A program may close a descriptor by syscall(3), or by an instruction of its own (Go, code of a
// JIT, parts that are linked statically). What this library keeps of the descriptor is then wrong.
// syscall(3) is wrapped. Instructions outside libc's code are seen by Syscall User Dispatch: the
// kernel sends SIGSYS in their place, and the handler makes the call by the same wrappers. What the
// handler cannot make, such as clone(2), ends the watching for good (docs/design/0018).
//
//     kUnwatched -> kAll   [begin_watching: the kernel can do so]
//     kUnwatched -> kLost  [lose_sight]
//     kAll       -> kLost  [lose_sight: a call that cannot be made for the program, a thread that
//                           is not watched, io_uring, or too many calls]
//
// Only programs with a file cache are watched. Any thread may call what is here, signal handlers
// too.
#pragma once

#include <signal.h>
#include <stdint.h>

#include <atomic>

namespace penstock::preload {

enum class Sight : int {
    kUnwatched,  // each use of a descriptor that is served is checked, by a system call
    kAll,        // all calls are seen
    kLost,       // as kUnwatched; also, no position and no written byte is kept from the kernel
};
inline std::atomic<Sight> sight{Sight::kUnwatched};

// Begins to watch the calling thread, and those that it makes. Call it once, at start, when no
// other thread runs.
void begin_watching();
// Watches the calling thread. A new thread calls it, and the child of a fork.
void watch_thread();
// Says that calls may go unseen from now on: hands positions and written bytes to the kernel.
void lose_sight();
// The same, if libc is to call a function in a thread of its own.
void lose_sight_of(const sigevent* event);
// Says that code from `begin` to `end` is Penstock's own: its system calls are not the program's.
void exempt(uintptr_t begin, uintptr_t end);
bool is_exempt(const void* caller);

// Makes a system call of six words as the program's: by the wrapper of libc's function that does
// the same, if there is one. `result` is what syscall(3) returns, with its errno. Returns false if
// the handler of SIGSYS cannot make it.
bool make_call(long number, const long* words, long* result);

}  // namespace penstock::preload
