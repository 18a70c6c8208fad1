// Linear forms over the indices of a nest of loops, and what they are at most.
//
// The variables of a form are, in this order, the coordinates of the process grid, the indices of
// the loops around an access, and the turn of a delta unit. A variable's range is a box, and it
// may also be bounded by a form in the variables before it: that is what triangular nests need. A
// maximum is found by putting, from the innermost variable on, the bound in the variable's place
// (Fourier and Motzkin's elimination, for bounds that are already solved). Arithmetic is in 128
// bits and checked: what overflows has no maximum.
//
// Pure. Values; any thread; nothing is allocated.
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

// The variable that is the index of the `depth`-th loop around.
constexpr size_t variable_of(size_t depth) { return kGridMax + depth; }

struct Form {
    Wide base = 0;
    std::array<Wide, kVariables> per{};

    Form() = default;
    explicit Form(const Affine& affine);
    // Whether any variable before `end` is in it, from `begin` on.
    [[nodiscard]] bool depends(size_t begin, size_t end) const;
};

// Adds `factor` * `form`; false: overflow, and the form is spoiled.
[[nodiscard]] bool add(Form* to, const Form& form, Wide factor);

// Range of a variable: low <= v <= high, and v <= bound where there is one, a form in variables
// before it.
struct Range {
    Wide low = 0, high = 0;
    bool bounded = false;
    Form bound;
};

using Ranges = std::array<Range, kVariables>;

// The form in variables before `keep` that is nowhere less than `form`, and equals its maximum over
// the others where no range is empty. None: overflow.
[[nodiscard]] std::optional<Form> eliminate(const Form& form, const Ranges& ranges, size_t keep);

// At least the maximum of the form: exact for boxes, and for nests whose loops all turn. None:
// beyond 2^126.
[[nodiscard]] std::optional<Wide> maximum(const Form& form, const Ranges& ranges);
[[nodiscard]] std::optional<Wide> minimum(const Form& form, const Ranges& ranges);

// a / b, rounded down or up; b != 0.
[[nodiscard]] Wide floor_divide(Wide a, Wide b);
[[nodiscard]] Wide ceil_divide(Wide a, Wide b);

}  // namespace penstock::access
