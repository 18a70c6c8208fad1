// Finds the access program of one stream while it runs, and predicts the next accesses.
//
// Each stream has its own detector. A stream is a file, a call context, and a thread, rank or GPU
// block. As in seed 004 there are five fields: position, offset, size, repetition, time. Algorithms
// are chosen by evidence, and the detector says which one holds. States: Initial (nothing seen),
// Learning (a pattern is being confirmed), Stable (predictions may be used), Suspended (a
// prediction was wrong; the pattern must be confirmed again, 2, 4, 8 ... times).
//
// Whatever came before, a stride is followed from the ninth access on. A delta period is followed
// after two periods and one access, and so is a nest if no turn has more than 5 parts (accesses or
// loops). Three cases take longer. A nest is expected when a row of accesses is as long as one
// before it; if the row goes on, the detector is wrong once. A period of fewer than 6 deltas may be
// chance if the stream had it among its last 32 deltas; once it has failed, six of its accesses are
// needed. Nests with more than 5 parts per turn need three turns.
//
// observe() and predict() allocate nothing. Together they take less than a microsecond at the 99th
// percentile, if a stream has at least 64 accesses before another one's turn. If thousands of
// streams take turns of a few accesses, all memory of a stream is cold and they take 2 to 3 us
// (bench detector, row p99-ns-cold). One thread at a time. Pure: time is an argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "access/program.h"

namespace penstock::access {

enum class State : uint8_t { kInitial, kLearning, kStable, kSuspended };

// The pattern that the detector has found. kNone never occurs with Stable.
enum class Algorithm : uint8_t {
    kNone,         // nothing fits: do not predict
    kContiguous,   // each access begins where the last ended
    kFixedStride,  // equal deltas, equal or evenly growing sizes; may be negative
    kNest,         // nested loops, also triangular ones and sequences in loops
    kPeriod,       // deltas that repeat with a period up to kPeriodMax
    kInterleaved,  // up to 4 strided streams in turn
    kMajority,     // more than half of the last 32 deltas agree: next access only
    kLoaded,       // a program given to load(), adjusted
    kRandom,       // confirmed: no predictions
};

struct Statistics {
    uint64_t observed = 0;   // accesses
    uint64_t predicted = 0;  // of them, those with a prediction while Stable
    uint64_t right = 0;      // of those, those predicted exactly: offset and size
    uint64_t outliers = 0;   // isolated accesses that did not demote a stable stream
    uint64_t suspensions = 0;
};

class Detector {
public:
    Detector();
    ~Detector();
    Detector(Detector&&) noexcept;
    Detector& operator=(Detector&&) noexcept;

    // Reports the stream's next access, at `time_ns` on any clock. A jump backwards counts as no
    // time; a jump far ahead counts only in part.
    void observe(const Access& access, uint64_t time_ns);

    [[nodiscard]] State state() const;
    [[nodiscard]] Algorithm algorithm() const;
    [[nodiscard]] const Statistics& statistics() const;
    // Returns the time between accesses, as far as it was seen and is credible.
    [[nodiscard]] Timing timing() const;

    // Writes the next accesses in order, while the detector is Stable. Returns how many; 0 if
    // nothing can be predicted. Never goes beyond the known end of a finite loop.
    size_t predict(std::span<Access> out) const;
    // Does the same from the `skip`-th next access on (0: the next one).
    size_t predict_from(size_t skip, std::span<Access> out) const;

    // Returns the program so far: the accesses seen, folded, and how they continue. It lacks
    // outliers that are held back, and what a stream without a pattern has dropped from the stack.
    // Allocates, so do not call it at each access.
    [[nodiscard]] Program program() const;

    // Loads a program of an earlier run, which must have passed validate(). The detector is
    // Learning until an access confirms it. A mismatch is handled as in the table of seed 004. If
    // stride and size are as predicted, it is Stable, and takes the position from the access. If
    // one of the two differs, it is Learning, and takes over the value that differs. If both
    // differ, nothing is predicted. The first access has no stride; it gives the position and the
    // size. A value taken over from one or two accesses is restored if the stream then continues as
    // predicted.
    void load(const Program& program, uint64_t rank);

    void reset();

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

// Does the same for a whole trace: returns a program that describes all of `accesses` exactly. It
// is the shortest of a few attempts: in the worst case an explicit list, or random if the list is
// longer than kListMax. The result is not in canonical form; canonical() makes it so.
[[nodiscard]] Program analyse(std::span<const Access> accesses, std::span<const uint64_t> times_ns);

// Finds one program for several streams of the same shape; stream i is that of rank ranks[i].
// Values that differ become linear in the rank or in coordinates of a process grid. (Ranks from
// 2^20 on: only in the rank. From 2^62 on: not at all.) Returns false, and leaves `*out` unchanged,
// if no such program describes all streams exactly.
[[nodiscard]] bool fit_ranks(std::span<const Program> programs, std::span<const uint64_t> ranks,
                             Program* out);

}  // namespace penstock::access
