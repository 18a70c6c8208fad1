// Explores every execution of a small program under the C++ memory model: depth-first over states.
//
// Choices: which thread goes next, which message a load reads, where in the modification order a
// store goes, whether a compare-exchange fails by reading an older value, and what is deferred.
// States that were seen are not entered again; they are told apart by a hash of 64 bits (ten
// million states collide with probability 3e-6). Exhaustive within the program: no bound on
// switches between threads.
//
// Load buffering. The views of memory.h let loads read the past. A load or update may also take
// place later than its thread's next accesses: a second search lets one access of each execution,
// without acquire, be *deferred*. It returns a guess, a value that the word takes in some execution
// without deferrals; the execution counts only if a message with that value comes later, from an
// access that the deferred one has not happened before. Until then no thread that knows the
// deferred access to be past, its own first of all, may touch the word.
//
// Left out: more than one deferral in an execution; sequentially consistent accesses and fences
// (the protocols have none); mixed sizes; weak compare-exchange. Stronger than the letter of C++,
// as all hardware is: an acquire is not deferred even where no release is read. Weaker:
// dependencies order nothing, as in C++; a guess may justify itself where the same value is also
// written without it.
//
// What keeps it small, and why nothing is lost (explorer.cc, alone() and wait()): a thread that has
// begun to load goes on until it changes something, since a load can be put off until then; a store
// to a word without updates is done at once, since loads can still read what was there before; a
// turn of a waiting loop that found nothing is taken back, and left out where there was news to
// find, since it is as one begun later.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "memory_model/program.h"

namespace penstock::memory_model {

// One half of one site's order taken away.
struct Weakening {
    Site site = site::kRelaxed;
    Order half = Order::kRelaxed;  // kAcquire or kRelease is what is taken away; kRelaxed: nothing
};

struct Options {
    bool sequential = false;  // sequential consistency: every interleaving, each load reads the
                              // newest
    bool deferrals = true;    // a second search with load buffering, after one without
    Weakening weakening;
    uint64_t states_max = 20'000'000;
    std::function<void(const Outcome&)> on_end;  // each distinct last state
};

struct Result {
    std::string error;     // empty: none
    std::string trace;     // how the error came about
    bool complete = true;  // false: states_max was reached
    uint64_t states = 0;   // distinct
    uint64_t steps = 0;
    uint64_t executions = 0;  // distinct last states
    bool passed() const { return error.empty() && complete; }
};

Result explore(const Program& program, const Options& options = {});

}  // namespace penstock::memory_model
