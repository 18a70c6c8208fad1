// Finds whether a program touches a byte: Cursor::contains().
//
// An access touches byte b if b - offset >= 0 and offset + size - 1 - b >= 0. These are two linear
// forms in the indices of the loops. The loops are handled one by one, from the longest stride on.
// What the inner loops can add is eliminated, which leaves a range for the index. If a turn of the
// loop does not reach into the next one, the range has one or two values.
#include <algorithm>
#include <utility>

#include "access/cursor.h"

namespace penstock::access {
namespace {

// Finds the values of `variable` for which both forms can be at least 0, given the variables before
// it. Returns false if there are none.
bool narrow(const std::array<Form, 2>& forms, const Ranges& ranges, size_t variable, Wide* low,
            Wide* high) {
    const Range& range = ranges[variable];
    *low = range.low;
    *high = range.bounded ? range.bound.base : range.high;
    for (const Form& form : forms) {
        const std::optional<Form> most = eliminate(form, ranges, variable + 1);
        if (!most) continue;
        const Wide slope = most->per[variable];
        if (slope > 0) *low = std::max(*low, ceil_divide(-most->base, slope));
        if (slope < 0) *high = std::min(*high, floor_divide(most->base, -slope));
        if (slope == 0 && most->base < 0) return false;
    }
    return *low <= *high;
}

void fix(Form* form, size_t variable, Wide value) {
    form->base += form->per[variable] * value;
    form->per[variable] = 0;
}

// Returns whether some values from `variable` on make both forms at least 0. `steps` is what is
// left of kContainsSteps; at 0 the answer is true.
bool reachable(const std::array<Form, 2>& forms, const Ranges& ranges, size_t variable,
               size_t* steps) {
    while (variable < kVariables && !ranges[variable].bounded && ranges[variable].high == 0) {
        ++variable;
    }
    if (variable == kVariables) return forms[0].base >= 0 && forms[1].base >= 0;
    Wide low = 0, high = 0;
    if (!narrow(forms, ranges, variable, &low, &high)) return false;
    bool matters = forms[0].per[variable] != 0 || forms[1].per[variable] != 0;
    bool last = true;
    for (size_t inner = variable + 1; inner < kVariables; ++inner) {
        matters |= ranges[inner].bounded && ranges[inner].bound.per[variable] != 0;
        last &= !ranges[inner].bounded && ranges[inner].high == 0;
    }
    if (last) return true;
    if (!matters) high = low;
    for (Wide value = low; value <= high; ++value) {
        if (value > low + 1 && (*steps == 0 || --*steps == 0)) return true;
        std::array<Form, 2> fixed_forms = forms;
        Ranges fixed_ranges = ranges;
        for (Form& form : fixed_forms) fix(&form, variable, value);
        for (Range& range : fixed_ranges) fix(&range.bound, variable, value);
        if (reachable(fixed_forms, fixed_ranges, variable + 1, steps)) return true;
    }
    return false;
}

// Puts the loops with the longest strides first. No range may be bounded by a form.
void sort_by_stride(Form* offset, Form* size, Ranges* ranges) {
    const auto magnitude = [offset](size_t v) {
        return offset->per[v] < 0 ? -offset->per[v] : offset->per[v];
    };
    for (size_t v = kGridMax; v < kVariables; ++v) {
        size_t longest = v;
        for (size_t other = v + 1; other < kVariables; ++other) {
            if (magnitude(other) > magnitude(longest)) longest = other;
        }
        std::swap((*ranges)[v], (*ranges)[longest]);
        std::swap(offset->per[v], offset->per[longest]);
        std::swap(size->per[v], size->per[longest]);
    }
}

}  // namespace

// Returns the affine's loops, on a base that includes the rank's share.
Form Cursor::form_of(const Affine& affine, Wide base) const {
    Form form(affine);
    form.base = base;
    std::fill_n(form.per.begin(), kGridMax, 0);
    return form;
}

// Computes the ranges of the indices around a node that is no loop. Indices that are always 0 have
// none. Returns false if the node has no access.
bool Cursor::ranges_around(size_t leaf, Ranges* ranges) const {
    for (size_t n = 0; n < leaf; ++n) {
        if (program_->nodes[n].kind != NodeKind::kLoop || end_of(n) <= leaf) continue;
        Range& range = (*ranges)[variable_of(shapes_[n].level)];
        Form bound = form_of(program_->nodes[n].trips, shapes_[n].trips - 1);
        for (size_t v = kGridMax; v < kVariables; ++v) {
            if (!(*ranges)[v].bounded && (*ranges)[v].high == 0) bound.per[v] = 0;
        }
        const std::optional<Wide> high = maximum(bound, *ranges);
        range.high = std::min<Wide>(high.value_or(kTripsMax), kTripsMax);
        if (range.high < 0) return false;
        range.bounded = bound.depends(0, kVariables);
        range.bound = bound;
    }
    return true;
}

bool Cursor::leaf_contains(size_t leaf, uint64_t byte, size_t* steps) const {
    const Node& node = program_->nodes[leaf];
    Ranges ranges;
    if (!ranges_around(leaf, &ranges)) return false;
    Form offset = form_of(node.offset, shapes_[leaf].offset);
    Form size = form_of(node.size, shapes_[leaf].size);
    Form trips = form_of(node.trips, shapes_[leaf].trips);
    for (size_t v = kGridMax; v < kVariables; ++v) {
        if (!ranges[v].bounded && ranges[v].high == 0) {
            offset.per[v] = size.per[v] = trips.per[v] = 0;
        }
    }
    const auto touches = [&](Form at, Form length, Ranges around) {
        const bool box = std::none_of(around.begin(), around.end(),
                                      [](const Range& range) { return range.bounded; });
        if (box) sort_by_stride(&at, &length, &around);
        std::array<Form, 2> forms;  // byte - offset, and offset + size - 1 - byte
        forms[0].base = byte;
        forms[1] = at;
        forms[1].base -= Wide{byte} + 1;
        return add(&forms[0], at, -1) && add(&forms[1], length, 1) &&
               reachable(forms, around, kGridMax, steps);
    };
    const auto touches_moved = [&](Wide by, Wide longer) {
        Form at = offset, length = size;
        at.base += by;
        length.base += longer;
        return touches(at, length, ranges);
    };
    if (node.kind == NodeKind::kAccess) return touches(offset, size, ranges);
    if (node.kind == NodeKind::kList) {
        return std::any_of(node.list.begin(), node.list.end(),
                           [&](const Access& one) { return touches_moved(one.offset, one.size); });
    }
    if (node.kind != NodeKind::kDeltas) return false;
    if (touches(offset, size, ranges)) return true;  // the first access
    // After each delta of the unit there is one access per turn.
    Range& turn = ranges[kTurn];
    turn.bound = trips;
    turn.bound.base -= 1;
    turn.bounded = trips.depends(0, kVariables);
    turn.high = std::min<Wide>(maximum(turn.bound, ranges).value_or(kTripsMax), kTripsMax);
    if (turn.high < 0) return false;
    for (const Delta& delta : node.deltas) {
        if (turn.bounded || turn.high > 0) {
            offset.per[kTurn] += delta.offset;
            size.per[kTurn] += delta.size;
        }
    }
    Wide by = 0, longer = 0;
    return std::any_of(node.deltas.begin(), node.deltas.end(), [&](const Delta& delta) {
        return touches_moved(by += delta.offset, longer += delta.size);
    });
}

bool Cursor::contains(uint64_t byte) const {
    size_t steps = kContainsSteps;
    for (size_t n = 0; n < shapes_.size(); ++n) {
        if (program_->nodes[n].kind != NodeKind::kLoop && leaf_contains(n, byte, &steps))
            return true;
    }
    return false;
}

}  // namespace penstock::access
