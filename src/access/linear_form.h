// Linear forms over the indices of a nest of loops, and their maxima.
//
// The variables of a form are, in this order: the coordinates of the process grid, the indices of
// the loops around an access, and the turn of a delta unit. The range of a variable is an interval.
// It may also be bounded by a form in the variables before it, which triangular nests need. A
// maximum is found from the innermost variable on, by substituting the variable's bound for it
// (Fourier and Motzkin's elimination, for bounds that are already solved). Arithmetic is in 128
// bits and checked: a form that overflows has no maximum.
//
// Pure values. Any thread. Nothing is allocated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "access/program.h"

namespace penstock::access {

__extension__ using Wide = __int128;

inline constexpr size_t kVariables = kGridMax + kDepthMax + 1;
inline constexpr size_t kTurn = kVariables - 1;  // variable: the turn of a delta unit

// Returns the variable that is the index of the `depth`-th surrounding loop.
constexpr size_t variable_of(size_t depth) { return kGridMax + depth; }

struct Form {
    Wide base = 0;
    std::array<Wide, kVariables> per{};

    Form() = default;
    explicit Form(const Affine& affine);
    // Returns whether it contains any variable in [begin, end).
    [[nodiscard]] bool depends(size_t begin, size_t end) const;
};

// Adds `factor` * `form`. Returns false on overflow; `*to` is then invalid.
[[nodiscard]] bool add(Form* to, const Form& form, Wide factor);

// The range of a variable v: low <= v <= high, and if `bounded`, v <= bound. The bound is a form in
// variables before v.
struct Range {
    Wide low = 0, high = 0;
    bool bounded = false;
    Form bound;
};

using Ranges = std::array<Range, kVariables>;

// Returns a form in variables before `keep` that is nowhere less than `form`. It equals the maximum
// of `form` over the other variables if no range is empty. Returns nothing on overflow.
[[nodiscard]] std::optional<Form> eliminate(const Form& form, const Ranges& ranges, size_t keep);

// Returns an upper bound of the form. It is the exact maximum for boxes, and for nests in which
// each loop turns. Returns nothing beyond 2^126.
[[nodiscard]] std::optional<Wide> maximum(const Form& form, const Ranges& ranges);
[[nodiscard]] std::optional<Wide> minimum(const Form& form, const Ranges& ranges);

// Returns a / b, rounded down or up. b must not be 0.
[[nodiscard]] Wide floor_divide(Wide a, Wide b);
[[nodiscard]] Wide ceil_divide(Wide a, Wide b);

}  // namespace penstock::access
