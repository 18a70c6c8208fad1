// Computes bounds of linear forms: see linear_form.h.
#include "access/linear_form.h"

#include <algorithm>

namespace penstock::access {
namespace {

bool add_product(Wide* to, Wide a, Wide b) {
    Wide product = 0;
    return !__builtin_mul_overflow(a, b, &product) && !__builtin_add_overflow(*to, product, to);
}

// Returns the maximum over the box alone.
std::optional<Wide> box_maximum(const Form& form, const Ranges& ranges) {
    Wide sum = form.base;
    for (size_t v = 0; v < kVariables; ++v) {
        const Wide at = form.per[v] > 0 ? ranges[v].high : ranges[v].low;
        if (!add_product(&sum, form.per[v], at)) return std::nullopt;
    }
    return sum;
}

}  // namespace

Form::Form(const Affine& affine) : base(affine.base) {
    for (size_t g = 0; g < kGridMax; ++g) per[g] = affine.per_rank[g];
    for (size_t d = 0; d < kDepthMax; ++d) per[variable_of(d)] = affine.per_loop[d];
}

bool Form::depends(size_t begin, size_t end) const {
    return std::any_of(per.begin() + begin, per.begin() + end, [](Wide c) { return c != 0; });
}

bool add(Form* to, const Form& form, Wide factor) {
    bool fits = add_product(&to->base, form.base, factor);
    for (size_t v = 0; v < kVariables; ++v) fits &= add_product(&to->per[v], form.per[v], factor);
    return fits;
}

std::optional<Form> eliminate(const Form& form, const Ranges& ranges, size_t keep) {
    Form left = form;
    for (size_t v = kVariables; v-- > keep;) {
        const Wide factor = left.per[v];
        if (factor == 0) continue;
        left.per[v] = 0;
        const Range& range = ranges[v];
        if (factor > 0 && range.bounded) {
            if (!add(&left, range.bound, factor)) return std::nullopt;
        } else if (!add_product(&left.base, factor, factor > 0 ? range.high : range.low)) {
            return std::nullopt;
        }
    }
    return left;
}

std::optional<Wide> maximum(const Form& form, const Ranges& ranges) {
    const std::optional<Wide> box = box_maximum(form, ranges);
    const std::optional<Form> nest = eliminate(form, ranges, 0);
    if (!nest) return box;
    return box ? std::min(*box, nest->base) : nest->base;
}

std::optional<Wide> minimum(const Form& form, const Ranges& ranges) {
    Form negative;
    if (!add(&negative, form, -1)) return std::nullopt;
    const std::optional<Wide> most = maximum(negative, ranges);
    if (!most) return std::nullopt;
    return -*most;
}

Wide floor_divide(Wide a, Wide b) {
    const Wide quotient = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Wide ceil_divide(Wide a, Wide b) { return -floor_divide(-a, b); }

}  // namespace penstock::access
