// Predicts that a stream repeats an order it had before, however long that order is: the epochs of
// a training run that goes through the same shuffled samples again. For recorded streams.
//
// It looks up the last two accesses among the earlier ones, and follows the accesses behind them.
// Once four in a row were the same, it predicts the next one. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "access/program.h"

namespace penstock::access {

class RepeatTracker {
public:
    // Keeps the span; the accesses must stay.
    explicit RepeatTracker(std::span<const Access> accesses);

    // Takes the next of the accesses. Returns whether it was predicted exactly.
    bool observe_next();
    // Returns the length of the order that was followed last, in accesses; 0: none.
    [[nodiscard]] size_t period() const { return period_; }

private:
    [[nodiscard]] size_t slot_of(size_t at) const;

    std::span<const Access> accesses_;
    std::vector<uint32_t> places_;  // by the hash of two accesses: the place of the second; 0: none
    size_t at_ = 0;                 // the next access
    size_t ahead_ = 0;              // the earlier access that it should equal; 0: none
    size_t run_ = 0;                // accesses in a row that were the same
    size_t period_ = 0;
};

}  // namespace penstock::access
