// Finds the access program of one stream while it runs, and tells what comes next.
//
// One detector for each stream: a file, a call context, and a thread, rank or GPU block. Five
// fields, as in seed 004: position, offset, size, repetition, time. Algorithms are tried by
// evidence, and the detector says which one holds. States: Initial (nothing seen), Learning (a
// pattern is being confirmed), Stable (predictions may be acted upon), Suspended (it was wrong; it
// must be confirmed anew, 2, 4, 8 ... times).
//
// Whatever came before, a stride is followed from the ninth access on, and after two of its periods
// and one access a delta period, or a nest of which no turn has more than 5 parts (accesses,
// loops). Three things cannot be told apart in that time: a row as long as one before it that goes
// on, from a nest (expected; wrong once); a period of fewer than 6 deltas that the stream had among
// its last 32, from chance, once it has failed (six accesses of it are waited for); parts of more
// than 5, from those around them (three turns).
//
// observe() and predict() allocate nothing and together take below a microsecond at the 99th
// percentile where a stream has 64 accesses and more before another's turn comes. Where thousands
// of streams take turns of a few accesses, all of a stream's memory is cold: 2 to 3 us (bench
// detector, row p99-ns-cold). One thread at a time. Pure: time is an argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "access/program.h"

namespace penstock::access {

enum class State : uint8_t { kInitial, kLearning, kStable, kSuspended };

// What the detector believes in; kNone with Stable is impossible.
enum class Algorithm : uint8_t {
    kNone,         // nothing fits: do not predict
    kContiguous,   // each access begins where the last ended
    kFixedStride,  // equal deltas, equal sizes or sizes that grow evenly; negative ones included
    kNest,         // nested loops, triangular ones and sequences inside loops included
    kPeriod,       // deltas that repeat with a period up to kPeriodMax
    kInterleaved,  // up to 4 strided streams in turn
    kMajority,     // more than half of the last 32 deltas agree: next access only
    kLoaded,       // a program from outside (load), adjusted
    kRandom,       // confirmed: off
};

struct Statistics {
    uint64_t observed = 0;   // accesses
    uint64_t predicted = 0;  // of them, those for which a prediction stood while Stable
    uint64_t right = 0;      // of those, told exactly: offset and size
    uint64_t outliers = 0;   // isolated accesses that did not demote a stable stream
    uint64_t suspensions = 0;
};

class Detector {
public:
    Detector();
    ~Detector();
    Detector(Detector&&) noexcept;
    Detector& operator=(Detector&&) noexcept;

    // The stream's next access, at `time_ns` on any clock. Jumps backwards count as no time; those
    // far ahead not as they are.
    void observe(const Access& access, uint64_t time_ns);

    [[nodiscard]] State state() const;
    [[nodiscard]] Algorithm algorithm() const;
    [[nodiscard]] const Statistics& statistics() const;
    // Time between accesses, as far as it was seen and can be believed.
    [[nodiscard]] Timing timing() const;

    // Writes what comes next, in order, while the detector is Stable; returns how many, 0 where
    // nothing can be told. Never beyond the end of a finite loop that it knows the end of.
    size_t predict(std::span<Access> out) const;
    // The same from the `skip`-th access ahead on (0: the next one).
    size_t predict_from(size_t skip, std::span<Access> out) const;

    // The program so far: what was seen folded into it, but for outliers that are held back and
    // what a stream without pattern has let fall off the stack, and how it goes on. Allocates; not
    // for every access.
    [[nodiscard]] Program program() const;

    // Takes a program of an earlier run, which has passed validate(): Learning until an access
    // confirms it. While it is loaded, a mismatch is dealt with as in the table of seed 004: stride
    // and size as told: Stable, and the position is taken from the access; one of the two differs:
    // Learning, and the value that differs is taken over; both differ: nothing is predicted. The
    // first access has no stride: it says where the program is, and how large. What was taken over
    // for a single access, or two, is given back where the stream then goes on as told.
    void load(const Program& program, uint64_t rank);

    void reset();

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

// The same over a whole trace: a program that tells all of `accesses` exactly, the shortest of a
// few attempts (an explicit list in the worst case, random where even that is longer than
// kListMax). Not in canonical form: canonical() makes it that.
[[nodiscard]] Program analyse(std::span<const Access> accesses, std::span<const uint64_t> times_ns);

// One program for several streams of the same shape, stream i being that of rank ranks[i]: values
// that differ become linear in the rank or in coordinates of a process grid (of ranks from 2^20 on:
// in the rank; from 2^62 on: not at all). False: no such program tells all of them exactly; then
// `*out` is left alone.
[[nodiscard]] bool fit_ranks(std::span<const Program> programs, std::span<const uint64_t> ranks,
                             Program* out);

}  // namespace penstock::access
