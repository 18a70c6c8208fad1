// Predicts the next byte ranges of sequences: accesses of any size, each of which begins where an
// earlier one ended. A stream may hold several sequences in any turns, as two readers of one file
// make them. For recorded streams; the online detector does not use it.
//
// A sequence is confirmed by joints, which are accesses that begin at its end. It then predicts as
// many bytes behind its end as it has read. How many joints it takes depends on the last 32
// accesses: the more of them were joints, the fewer.
//
// If several threads share a sequence, their accesses are recorded a little out of order. Then an
// access may begin within reach behind the end, and what it leaves out may follow later.
//
// Pure. Allocates nothing. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "access/program.h"

namespace penstock::access {

class SequenceTracker {
public:
    // `threads`: how many threads made the accesses.
    explicit SequenceTracker(size_t threads = 1) : threads_(threads) {}

    // Takes the next access. Returns how many of its bytes were in a predicted range.
    int64_t observe(const Access& access);
    // Returns whether several sequences take turns of few accesses.
    [[nodiscard]] bool interleaved() const { return concurrent() > 1 && 4 * switches_ > joints_; }
    // Returns how many sequences take turns, on average.
    [[nodiscard]] uint64_t concurrent() const {
        return joints_ == 0 ? 0 : (2 * active_sum_ + joints_) / (2 * joints_);
    }

private:
    static constexpr size_t kSequences = 32;

    struct Sequence {
        int64_t begin = 0, end = 0;
        uint64_t joints = 0;
        uint64_t last = 0;  // number of its last access; 0: the place is free
    };

    [[nodiscard]] Sequence* ending_at(int64_t offset);
    [[nodiscard]] Sequence* beginning_at(int64_t offset);
    [[nodiscard]] int64_t reach() const;
    [[nodiscard]] bool was_read(int64_t offset) const;
    [[nodiscard]] const Sequence* within_reach(int64_t offset) const;
    [[nodiscard]] bool confirmed(const Sequence& one) const;
    [[nodiscard]] int64_t told_by(const Sequence& one, const Access& access) const;
    const Sequence* add(const Access& access, Sequence* before, Sequence* behind);
    Sequence* new_sequence(int64_t offset);
    void extend(Sequence* one, int64_t end);
    void count_joint(const Sequence& one);

    const size_t threads_;
    std::array<Sequence, kSequences> sequences_{};
    uint64_t count_ = 0;
    uint32_t recent_ = 0;             // bit i: the access i places ago was predicted or a joint
    int64_t largest_ = 0;             // bytes of an access
    Access last_access_;              // without repetitions
    const Sequence* last_ = nullptr;  // its sequence
    uint64_t joints_ = 0, switches_ = 0, active_sum_ = 0;
};

}  // namespace penstock::access
