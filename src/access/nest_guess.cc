// Guesses what may come next: the loop that explains most of the top of the stack.
#include <algorithm>

#include "access/nest.h"

namespace penstock::access {
namespace {

constexpr size_t kLeadsMax = 40;       // entries from the top that are looked at
constexpr uint32_t kWeightMax = 1024;  // evidence above this is not counted

// Returns whether two nodes differ only in their bases.
bool alike(const Term& a, const Term& b) {
    return a.kind == b.kind && a.span == b.span && a.offset.step == b.offset.step &&
           a.size.step == b.size.step && a.trips.step == b.trips.step;
}

}  // namespace

uint32_t NestRecogniser::weight_of(size_t entry, size_t end) const {
    uint64_t sum = 0;
    for (; entry < end; ++entry) sum += weight(term(entry));
    return static_cast<uint32_t>(std::min<uint64_t>(sum, kWeightMax));
}

// Searches for the best guess. Without `thorough` there are only two candidates, which are cheap
// enough for each access: the loop at the top, and two groups with which the access at the top lies
// on a line.
void NestRecogniser::find_guess(bool thorough) {
    guessing_ = false;
    if (entries_.empty()) return;
    if (thorough) {
        find_widest();
    } else if (entries_.back().shape != 0) {
        guess_open_loop(entries_.size() - 1);
    }
    if (!guessing_) find_third();
}

// Notes which of the entries at the top are loops. Returns false if none is.
bool NestRecogniser::note_loops() {
    const Entry* top = &entries_.back();
    const size_t count = std::min(entries_.size(), kLeadsMax);
    loops_ = 0;
    for (size_t i = 0; i < count; ++i) loops_ |= uint64_t{(top - i)->shape != 0} << i;
    return loops_ != 0;
}

// The candidate that explains most of the stack's entries wins: it says more about the loops inside
// (where they end) than those loops themselves.
void NestRecogniser::find_widest() {
    if (!note_loops()) return;
    const Entry* top = &entries_.back();
    const size_t count = std::min(entries_.size(), kLeadsMax);
    tries_ = limits_.tries;
    const size_t two_max = 3 * limits_.guess_max + limits_.begun_max;
    const size_t span_max = std::min(count, std::max(limits_.body_max + 1, two_max));
    for (size_t span = span_max; span > 0; --span) {
        if ((loops_ >> (span - 1) & 1) != 0 && guess_open_loop(entries_.size() - span)) return;
        if (span > two_max) continue;
        const Entry* bottom = top - (span - 1);
        for (size_t body = std::min(limits_.guess_max, span / 2); body > 0; --body) {
            const size_t partial = span - 2 * body;
            if (partial > body + limits_.begun_max) break;
            if (bottom->shape == bottom[body].shape &&
                (partial == 0 || lie_in_line(bottom, body)) && guess_of_two(body, partial)) {
                return;
            }
        }
        for (size_t body = std::min(limits_.guess_max / 2, span - 1); body > 0; --body) {
            const size_t partial = span - body;
            if (partial > body + limits_.begun_max + (body == 1 ? 2 : 0)) break;
            if (bottom->first.size == bottom[body].first.size && guess_of_one(body, partial))
                return;
        }
    }
}

// Tries the third turn of what has turned twice, if the access at the top begins it. It is tried
// separately, because the candidates before it may have used up the tries. A point on a line with
// two others is stronger evidence than theirs.
void NestRecogniser::find_third() {
    const size_t below = entries_.size() - 1;
    size_t body = limits_.guess_max + 1;
    while ((body = third_in_line(below, {&entries_.back().first, 1}, body - 1)) > 0) {
        if (lead(body).shape != lead(2 * body).shape || !note_loops()) continue;
        tries_ = 1;
        if (guess_of_two(body, 1)) return;
    }
}

// Returns the largest number of entries per group, at most `most`, for which the last two groups
// begin on a line with the last access of `behind`. The accesses of `behind` follow the first `end`
// entries. Returns 0 if there is none.
size_t NestRecogniser::third_in_line(size_t end, std::span<const Access> behind,
                                     size_t most) const {
    const size_t third = end + behind.size() - 1;
    const auto first_of = [&](size_t at) -> const Access& {
        return at < end ? entries_[at].first : behind[at - end];
    };
    for (size_t body = std::min(most, third / 2); body > 0; --body) {
        const Access &one = first_of(third - 2 * body), &two = first_of(third - body);
        if (subtract(behind.back().offset, two.offset) == subtract(two.offset, one.offset) &&
            subtract(behind.back().size, two.size) == subtract(two.size, one.size)) {
            return body;
        }
    }
    return 0;
}

bool NestRecogniser::may_begin_third(std::span<const Access> behind) const {
    return guessing_ && third_in_line(guess_entry_ + 1, behind, limits_.guess_max) > 0;
}

bool NestRecogniser::is_blind() const {
    if (guess_groups_ == 2) return evidence_ == two_turns_;
    const size_t depth = walker_.depth();
    return guess_groups_ == 1 && (depth == 1 || walker_.index()[depth - 1] == 0);
}

// Returns whether the first accesses of three groups, the first at `bottom`, lie on a line.
bool NestRecogniser::lie_in_line(const Entry* bottom, size_t body) {
    const Access &one = bottom->first, &two = bottom[body].first, &three = bottom[2 * body].first;
    return subtract(three.offset, two.offset) == subtract(two.offset, one.offset) &&
           subtract(three.size, two.size) == subtract(two.size, one.size);
}

// Guesses a loop made from three turns, if the terms behind it begin the next turn.
bool NestRecogniser::guess_open_loop(size_t entry) {
    const Term* loop = term(entry);
    if (entry + 1 < entries_.size() && !may_turn(entry)) return false;
    Walker walker;
    walker.start_at(loop, loop->trips.base);
    if (!consume_from(walker, entry + 1) || walker.ended()) return false;
    guess_.assign(loop, loop + loop->span);
    guess_[0].trips.base = int64_t{kTripsMax};
    const auto turn = static_cast<uint32_t>(std::min<int64_t>(loop->trips.base, kWeightMax));
    const uint32_t each = std::max(1u, weight(loop) / std::max(1u, turn));
    evidence_ = std::min(kWeightMax, (turn - 2) * each + weight_of(entry + 1, entries_.size()));
    walker.move_to(guess_.data());
    walker_ = walker;
    guess_entry_ = entry;
    guess_groups_ = 0;
    return guessing_ = true;
}

// Guesses from two groups that are alike and have a loop, if the terms behind them begin a third on
// their line.
bool NestRecogniser::guess_of_two(size_t body, size_t partial) {
    const uint64_t mask = ((uint64_t{1} << body) - 1) << (partial + body);
    if ((loops_ & mask) == 0) return false;
    const size_t count = entries_.size();
    // The loop at the very top may continue: nothing says that the second group is complete.
    if (partial == 0 && term(count - 1)->is_loop() &&
        term(count - 1)->trips.base != term(count - 1 - body)->trips.base) {
        return false;
    }
    const size_t first = count - partial - 2 * body;
    for (size_t i = 1; i < body; ++i) {
        if (entries_[first + i].shape != entries_[first + body + i].shape) return false;
    }
    if (tries_ == 0) return false;
    --tries_;
    if (!build_guess(first, first + body, body)) return false;
    Walker walker;
    walker.start_at(guess_.data(), 2);
    if (!consume_from(walker, count - partial) || walker.ended()) return false;
    two_turns_ = weight_of(first + body, count - partial) - 1;
    evidence_ = weight_of(first + body, count) - 1;
    walker_ = walker;
    guess_entry_ = first;
    guess_groups_ = 2;
    guess_body_ = body;
    return guessing_ = true;
}

// Returns whether the entries from `entry` on may begin the group at `first` at another place, as
// far as that is known without the walk.
bool NestRecogniser::may_begin(size_t first, size_t body, size_t entry) const {
    const size_t end = entries_.size();
    for (size_t i = 0; i < body && entry < end; ++i, ++entry) {
        const Entry &one = entries_[first + i], &two = entries_[entry];
        if (one.first.size != two.first.size) return false;
        if (one.shape == two.shape) {
            if (one.shape == 0) continue;
            const int64_t trips = term(first + i)->trips.base, begun = term(entry)->trips.base;
            if (trips != begun) return begun < trips && entry + 1 == end;
            continue;
        }
        if (one.shape == 0) return false;
        // A loop that has begun: first as accesses, or as turns of the loops in it.
        const Term& leaf = first_leaf(term(first + i));
        const size_t depth = term(first + i)->depth;
        if (two.shape != 0) return depth > 1;
        if (entry + 1 == end) return i > 0;
        const Entry& next = entries_[entry + 1];
        return term(first + i)->span > depth + 1 ||
               (subtract(next.first.offset, two.first.offset) == leaf.offset.step[depth - 1] &&
                subtract(next.first.size, two.first.size) == leaf.size.step[depth - 1]);
    }
    return true;
}

// Guesses from one group with a loop, if the terms behind it begin another like it at another
// place. Nothing is guessed about what follows.
bool NestRecogniser::guess_of_one(size_t body, size_t partial) {
    const uint64_t mask = ((uint64_t{1} << body) - 1) << partial;
    // Each run of loops has such groups of loops alone, so those need two groups.
    if ((loops_ & mask) == 0 || (body > 1 && (partial < 2 || (loops_ & mask) == mask)))
        return false;
    const size_t count = entries_.size();
    const size_t first = count - partial - body;
    if (!may_begin(first, body, count - partial) || tries_ == 0) return false;
    --tries_;
    const size_t begin = start_of(first), end = start_of(count - partial);
    if (end - begin + 1 > limits_.nodes / 2) return false;
    Term root;
    root.kind = NodeKind::kLoop;
    root.children = static_cast<uint16_t>(body);
    root.span = static_cast<uint32_t>(1 + end - begin);
    root.trips.base = 2;
    guess_.assign(1, root);
    guess_.insert(guess_.end(), terms_.begin() + static_cast<ptrdiff_t>(begin),
                  terms_.begin() + static_cast<ptrdiff_t>(end));
    wrap({&guess_[1], end - begin});
    const uint32_t known = take_steps(count - partial);
    const uint32_t seen = weight_of(count - partial, count);
    if (known == 0 || seen <= known) return false;
    Walker walker;
    walker.start_at(guess_.data(), 1, 2);
    if (!consume_from(walker, count - partial) || walker.ended()) return false;
    evidence_ = seen - known - 1;
    walker_ = walker;
    guess_entry_ = first;
    guess_groups_ = 1;
    guess_body_ = body;
    return guessing_ = true;
}

// Gives each child of guess_ the step to the entry that stands for it, from `entry` on, up to the
// first loop that is not complete. The children after that get the first child's step. Returns how
// many have their own steps; 0 if the nest is too deep.
uint32_t NestRecogniser::take_steps(size_t entry) {
    Term& root = guess_[0];
    uint32_t known = 0;
    bool complete = true;
    int64_t step = 0, first_step = 0;
    for (uint32_t at = 1; at < root.span; at += guess_[at].span) {
        const Term& child = guess_[at];
        if (child.depth >= kDepthMax) return 0;
        root.depth = std::max(root.depth, static_cast<uint8_t>(child.depth + 1));
        step = first_step;
        if (complete && entry < entries_.size()) {
            const Term* seen = term(entry++);
            step = subtract(first_leaf(seen).offset.base, first_leaf(&child).offset.base);
            if (known++ == 0) first_step = step;
            complete = seen->is_loop() == child.is_loop() && seen->trips.base == child.trips.base;
        }
        for (uint32_t i = at; i < at + child.span; ++i) {
            if (!guess_[i].is_loop()) guess_[i].offset.step[0] = step;
        }
    }
    return known;
}

// Puts a loop without an end into guess_; its first turns are the two groups that begin at these
// entries. Returns false if the groups are not alike, or if it would be too deep or too large.
bool NestRecogniser::build_guess(size_t first, size_t second, size_t body) {
    const size_t a = start_of(first), b = start_of(second);
    const size_t nodes = b - a;
    if (start_of(second + body) - b != nodes || nodes + 1 > limits_.nodes / 2) return false;
    for (size_t i = 0; i < nodes; ++i) {
        if (terms_[a + i].depth >= kDepthMax || !alike(terms_[a + i], terms_[b + i])) return false;
    }
    Term root;
    root.kind = NodeKind::kLoop;
    root.children = static_cast<uint16_t>(body);
    root.span = static_cast<uint32_t>(1 + nodes);
    root.trips.base = int64_t{kTripsMax};
    guess_.assign(1, root);
    guess_.insert(guess_.end(), terms_.begin() + static_cast<ptrdiff_t>(a),
                  terms_.begin() + static_cast<ptrdiff_t>(b));
    wrap({&guess_[1], nodes});
    for (size_t i = 0; i < nodes; ++i) {
        Term& node = guess_[1 + i];
        const Term &x = terms_[a + i], &y = terms_[b + i];
        node.offset.step[0] = subtract(y.offset.base, x.offset.base);
        node.size.step[0] = subtract(y.size.base, x.size.base);
        node.trips.step[0] = subtract(y.trips.base, x.trips.base);
        guess_[0].depth = std::max(guess_[0].depth, static_cast<uint8_t>(node.depth + 1));
    }
    return true;
}

}  // namespace penstock::access
