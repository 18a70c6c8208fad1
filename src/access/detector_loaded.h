// A program of an earlier run, held against the accesses of this one and adjusted to them, by the
// table of seed 004. What was adjusted is taken back where the stream goes on as if nothing had
// been: a single access beside the program, instead of one of it, or one left out, are no reason to
// change it. Allocates at construction only. Pure; one thread.
#pragma once

#include <span>
#include <vector>

#include "access/detector.h"
#include "access/nest_program.h"

namespace penstock::access {

class LoadedProgram {
public:
    LoadedProgram(const Program& program, uint64_t rank);
    LoadedProgram(const LoadedProgram&) = delete;
    LoadedProgram& operator=(const LoadedProgram&) = delete;

    void observe(const Access& access);
    // kLearning, kStable, or kSuspended where both stride and size differed.
    [[nodiscard]] State state() const { return state_; }
    // Accesses beside the program that did not change it.
    [[nodiscard]] uint64_t outliers() const { return outliers_; }
    // It is over, or was wrong so often in a row that it is another program's.
    [[nodiscard]] bool spent() const;
    size_t predict_from(size_t skip, std::span<Access> out) const;

    [[nodiscard]] const Program& program() const { return program_; }

private:
    // Where the stream is in the program, which has been moved by the shifts.
    struct Course {
        Walker walker, before;  // at the next access, and at the last that was taken
        Access last;            // the last access that was taken, as it was seen
        int64_t offset_shift = 0, size_shift = 0;
        [[nodiscard]] Access told(const Walker& at) const;
    };

    void leave();
    bool return_to(const Access& access);
    void take_stride(int64_t difference);

    const Program program_;
    std::vector<Term> terms_;  // the steps are adjusted
    Course now_;
    bool begun_ = false;
    // What was stable before it was adjusted, and how many accesses ago that was; 0: nothing.
    std::vector<Term> left_terms_;
    Course left_;
    unsigned since_left_ = 0;
    uint64_t outliers_ = 0;
    unsigned wrong_ = 0;  // in a row
    State state_ = State::kLearning;
};

// Writes what a walk has ahead, moved by the shifts, as long as it can be an access.
size_t write_ahead(Walker walker, size_t skip, int64_t offset_shift, int64_t size_shift,
                   std::span<Access> out);
[[nodiscard]] bool possible(const Access& access);

}  // namespace penstock::access
