// A program of an earlier run. It is compared with the accesses of this run and adjusted to them,
// by the table of seed 004. An adjustment is undone if the stream continues as if nothing had
// happened: a single additional, different or missing access is no reason to change the program.
// Allocates only at construction. Pure; one thread.
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
    // Returns kLearning, kStable, or kSuspended if both stride and size differed.
    [[nodiscard]] State state() const { return state_; }
    // Returns the count of accesses outside the program that did not change it.
    [[nodiscard]] uint64_t outliers() const { return outliers_; }
    // Returns whether the program has ended, or was wrong so often in a row that the accesses are
    // another program's.
    [[nodiscard]] bool spent() const;
    size_t predict_from(size_t skip, std::span<Access> out) const;

    [[nodiscard]] const Program& program() const { return program_; }

private:
    // The stream's position in the program, and the shifts of its accesses.
    struct Course {
        Walker walker, before;  // at the next access; at the last one taken
        Access last;            // the last access taken, as it was seen
        int64_t offset_shift = 0, size_shift = 0;
        [[nodiscard]] Access told(const Walker& at) const;
    };

    void leave();
    bool return_to(const Access& access);
    void take_stride(int64_t difference);

    const Program program_;
    std::vector<Term> terms_;  // their steps are adjusted
    Course now_;
    bool begun_ = false;
    // The stable state before the last adjustment, and how many accesses ago that was; 0: none.
    std::vector<Term> left_terms_;
    Course left_;
    unsigned since_left_ = 0;
    uint64_t outliers_ = 0;
    unsigned wrong_ = 0;  // in a row
    State state_ = State::kLearning;
};

// Writes the next accesses of a walk, moved by the shifts, as long as they are possible accesses.
size_t write_ahead(Walker walker, size_t skip, int64_t offset_shift, int64_t size_shift,
                   std::span<Access> out);
[[nodiscard]] bool possible(const Access& access);

}  // namespace penstock::access
