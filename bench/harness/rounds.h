// Rounds of a case and its rivals: each round runs every side once, in an order drawn at random. In
// a fixed order a side would always follow the same other, with the CPU caches that this one
// leaves: after a direct read they hold nothing of the destination.
//
// One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "base/prng.h"

namespace penstock::bench {

using Pairs = std::vector<std::pair<double, double>>;  // seconds: the case, a rival

// Returns the seconds of one run of a side.
using RunSide = std::function<double(size_t side)>;

// Runs each of `sides` once. Writes the seconds of side i to (*seconds)[i].
void take_round(base::Prng* prng, std::vector<size_t> sides, std::vector<double>* seconds,
                const RunSide& run_side);

// Takes a round that is dropped, then `rounds` rounds. Returns the seconds of each side.
std::vector<std::vector<double>> take_rounds(base::Prng* prng, size_t sides, unsigned rounds,
                                             const RunSide& run_side);

struct Choice {
    std::vector<Pairs> pairs;  // of the case with each rival
    size_t best = 0;           // the rival with the least median
};

// Chooses the best of `rivals` in `rounds` rounds. Sides 0 to rivals - 1 are the rivals, and the
// side after them is the case. To judge the case, take other rounds: here chance helped the best.
[[nodiscard]] Choice choose_best(base::Prng* prng, size_t rivals, unsigned rounds,
                                 const RunSide& run_side);

[[nodiscard]] double median(std::vector<double> values);

// Returns the median of what the rival took over what the case took; above 1: the case is faster.
[[nodiscard]] double median_gain(const Pairs& pairs);

// Returns the geometric means over `cells`, round by round, for as many rounds as all cells have.
[[nodiscard]] Pairs geometric_means(const std::vector<const Pairs*>& cells);

}  // namespace penstock::bench
