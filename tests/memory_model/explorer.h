// Explores every execution of a small program under the C++ memory model: a depth-first search over states.
//
// Choices: which thread goes next, which message a load reads, where in the modification order a store goes,
// whether a strong compare-exchange that could fail by reading an older value does, and what is deferred.
// States that were seen are not entered again; they are told apart by a hash of 64 bits (ten million states
// collide with probability 3e-6). Exhaustive within the program; no bound on preemptions.
//
// What the model covers, beyond the views of memory.h: loads and updates that take place after later accesses
// of their thread (load buffering). A load or update without acquire may be *deferred*: it returns a guessed
// value, one that the word takes in some execution without deferrals, and the execution counts only if a
// message with that value is written later by an access that the deferred one has not happened before. A
// thread that knows the deferred access to be past, its own thread first of all, may not touch the word in
// between.
//   Left out: more than one deferral in an execution; sequentially consistent accesses and fences (the
//   protocols have none); mixed sizes; weak compare-exchange; values out of thin air, except that a guessed
//   value might justify itself where some execution without deferrals writes the same value.
//   Stronger than C++: nothing else known. Weaker: dependencies between accesses order nothing, as in C++.
// A thread that found nothing to do waits for news of the words that it loaded (Next::kRetry); loading stale
// values and trying again is left out, as the same iteration begun later reads as much.
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
    bool sequential = false;  // sequential consistency: every interleaving, each load reads the newest
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
