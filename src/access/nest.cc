#include "access/nest.h"

#include <algorithm>

namespace penstock::access {
namespace {

// One access can complete a loop, which completes a turn of the surrounding loop, and so on. With
// the loops that three groups make, that is twice the depth.
constexpr unsigned kFoldsMax = 2 * kDepthMax;

// There is no access at this place.
constexpr Access kUnknown{INT64_MIN, INT64_MIN};

constexpr uint32_t kEvidenceMax = 1u << 30;

bool on_line(int64_t a, int64_t b, int64_t c) { return subtract(b, a) == subtract(c, b); }

// Returns whether three nodes differ only in their bases, and those lie on a line.
bool nodes_in_line(const Term& a, const Term& b, const Term& c) {
    const auto alike = [](const Term& x, const Term& y) {
        return x.kind == y.kind && x.span == y.span && x.offset.step == y.offset.step &&
               x.size.step == y.size.step && x.trips.step == y.trips.step;
    };
    return alike(a, b) && alike(b, c) && on_line(a.offset.base, b.offset.base, c.offset.base) &&
           on_line(a.size.base, b.size.base, c.size.base) &&
           on_line(a.trips.base, b.trips.base, c.trips.base);
}

}  // namespace

NestRecogniser::NestRecogniser(const NestLimits& limits, std::vector<Term>* spill)
    : limits_(limits), spill_(spill) {
    terms_.reserve(limits.nodes);
    scratch_.reserve(limits.nodes);
    rotated_.reserve(limits.nodes);
    guess_.reserve(limits.nodes);
    entries_.reserve(limits.entries);
}

void NestRecogniser::reset() {
    terms_.clear();
    entries_.clear();
    guessing_ = false;
}

void NestRecogniser::truncate(size_t entry) {
    terms_.resize(start_of(entry));
    entries_.resize(entry);
}

// Drops the oldest terms until another term of `nodes` nodes fits, and some more.
void NestRecogniser::make_room(size_t nodes) {
    if (entries_.size() < limits_.entries && terms_.size() + nodes <= limits_.nodes) return;
    size_t entry = 0;
    const size_t kept_entries = limits_.entries * 3 / 4;
    const size_t kept_nodes = limits_.nodes * 3 / 4;
    while (entry < entries_.size() && (entries_.size() - entry > kept_entries ||
                                       terms_.size() - start_of(entry) + nodes > kept_nodes)) {
        ++entry;
    }
    const size_t start = start_of(entry);
    const auto middle = terms_.begin() + static_cast<ptrdiff_t>(start);
    if (spill_ != nullptr) spill_->insert(spill_->end(), terms_.begin(), middle);
    terms_.erase(terms_.begin(), middle);
    entries_.erase(entries_.begin(), entries_.begin() + static_cast<ptrdiff_t>(entry));
    for (Entry& left : entries_) left.start -= static_cast<uint32_t>(start);
}

// Makes a term of the nodes from `start` on.
void NestRecogniser::append_entry(size_t start) {
    const Term* added = &terms_[start];
    const Term& leaf = first_leaf(added);
    entries_.push_back(
        {static_cast<uint32_t>(start), shape_of(added), {leaf.offset.base, leaf.size.base}});
    set_next(entries_.size() - 1);
}

void NestRecogniser::set_next(size_t entry) {
    if (entries_[entry].shape == 0) return;
    const Term* loop = term(entry);
    const Term& leaf = first_leaf(loop);
    const int64_t turn = loop->trips.base;
    // If an inner loop in front does not turn at all then, it would hide the access behind it.
    const bool hidden = loop[1].is_loop() &&
                        add(loop[1].trips.base, multiply(loop[1].trips.step[0], turn)) < 1;
    entries_[entry].next = hidden
                               ? kUnknown
                               : Access{add(leaf.offset.base, multiply(leaf.offset.step[0], turn)),
                                        add(leaf.size.base, multiply(leaf.size.step[0], turn))};
}

// Returns whether the entry behind this one may begin the next turn of its loop.
bool NestRecogniser::may_turn(size_t entry) const {
    const Entry& loop = entries_[entry];
    return loop.shape != 0 && (loop.next == entries_[entry + 1].first || loop.next == kUnknown);
}

void NestRecogniser::append(const Term* term) {
    make_room(term->span);
    const size_t start = terms_.size();
    terms_.insert(terms_.end(), term, term + term->span);
    append_entry(start);
}

// Appends a term from inside the guess with the outer indices filled in. A loop that turns once or
// twice is appended as its content, as it would have been read.
void NestRecogniser::append_filled(const Term* term, const Steps& index, size_t depth) {
    if (term->is_loop()) {
        const int64_t trips = term->trips.at(index, depth);
        if (trips < 3) {
            Steps inner = index;
            for (inner[depth] = 0; inner[depth] < trips; ++inner[depth]) {
                for (uint32_t at = 1; at < term->span; at += term[at].span) {
                    append_filled(term + at, inner, depth + 1);
                }
            }
            return;
        }
    }
    make_room(term->span);
    const size_t start = terms_.size();
    terms_.insert(terms_.end(), term, term + term->span);
    for (size_t i = start; i < terms_.size(); ++i) fill_in(&terms_[i], index, depth);
    append_entry(start);
}

// Puts the complete turns of the guess on the stack. Entries from which it was made stay.
void NestRecogniser::append_turns() {
    const int64_t turns = walker_.index()[0];
    if (guess_groups_ == 0) {
        truncate(guess_entry_ + 1);
        terms_[entries_[guess_entry_].start].trips.base = turns;
        set_next(guess_entry_);
    } else if (turns >= 3) {
        truncate(guess_entry_);
        guess_[0].trips.base = turns;
        append(guess_.data());
        extend_backwards();
    } else {
        truncate(guess_entry_ + guess_groups_ * guess_body_);
        for (Steps done{static_cast<int64_t>(guess_groups_)}; done[0] < turns; ++done[0]) {
            for (uint32_t i = 1; i < guess_[0].span; i += guess_[i].span)
                append_filled(&guess_[i], done, 1);
        }
    }
    if (!walker_.ended()) append_begun(0);
}

// Appends what the walk has done of a loop inside the guess: its complete turns, then the begun
// one.
void NestRecogniser::append_started(size_t depth) {
    Term& loop = guess_[walker_.loop(depth)];
    const Steps& index = walker_.index();
    if (index[depth] >= 3) {
        // Its own trips end where the walk stands.
        const Value trips = loop.trips;
        loop.trips = {index[depth], {}};
        append_filled(&loop, index, depth);
        loop.trips = trips;
    } else {
        Steps done = index;
        for (done[depth] = 0; done[depth] < index[depth]; ++done[depth]) {
            for (uint32_t i = 1; i < loop.span; i += (&loop)[i].span)
                append_filled(&loop + i, done, depth + 1);
        }
    }
    append_begun(depth);
}

// Appends what the walk has done in the begun turn of the loop at `depth`.
void NestRecogniser::append_begun(size_t depth) {
    const uint32_t at = walker_.loop(depth), end = at + guess_[at].span;
    for (uint32_t i = at + 1; i < end; i += guess_[i].span) {
        if (i + guess_[i].span <= walker_.at()) {
            append_filled(&guess_[i], walker_.index(), depth + 1);
        } else {
            if (walker_.depth() > depth + 1 && walker_.loop(depth + 1) == i)
                append_started(depth + 1);
            return;
        }
    }
}

void NestRecogniser::advance() {
    walker_.advance();
    if (evidence_ < kEvidenceMax) ++evidence_;
    if (!walker_.ended()) return;
    search();
}

void NestRecogniser::prepare() const {
    constexpr size_t kLine = 64, kEntryBytes = 24 * sizeof(Entry), kTermBytes = 12 * sizeof(Term),
                     kGuessBytes = 6 * sizeof(Term);
    const auto bring = [](const void* end, size_t bytes) {
        const char* last = static_cast<const char*>(end);
        for (size_t back = kLine; back <= bytes; back += kLine) __builtin_prefetch(last - back);
    };
    bring(entries_.data() + entries_.size(),
          std::min(entries_.size() * sizeof(Entry), kEntryBytes));
    bring(terms_.data() + terms_.size(), std::min(terms_.size() * sizeof(Term), kTermBytes));
    // The next guess is written there.
    bring(reinterpret_cast<const char*>(guess_.data()) + kGuessBytes, kGuessBytes);
}

void NestRecogniser::learn(std::span<const Access> accesses, bool thorough) {
    prepare();
    finish();
    for (const Access& access : accesses) {
        const Term term = plain(access);
        append(&term);
    }
    fold();
    find_guess(thorough);
}

void NestRecogniser::search() {
    finish();
    find_guess(true);
}

void NestRecogniser::finish() {
    if (!guessing_) return;
    guessing_ = false;
    append_turns();
    fold();
}

void NestRecogniser::fold() {
    for (unsigned i = 0; i < kFoldsMax; ++i) {
        if (!absorb() && !create()) return;
    }
}

// Returns whether the entries from `entry` on are what comes next in the walk.
bool NestRecogniser::consume_from(Walker& walker, size_t entry) const {
    for (; entry < entries_.size(); ++entry) {
        if (!walker.consume(term(entry))) return false;
    }
    return true;
}

// Makes the terms behind a loop its next turns, if they are.
bool NestRecogniser::absorb() {
    const size_t count = entries_.size();
    const size_t lowest = count > limits_.mixed_max + 1 ? count - limits_.mixed_max - 1 : 0;
    for (size_t entry = count - (count > 0); entry-- > lowest;) {
        if (!may_turn(entry)) continue;
        Term* loop = &terms_[entries_[entry].start];
        Walker walker;
        walker.start_at(loop, loop->trips.base);
        if (!consume_from(walker, entry + 1) || walker.ended() || !walker.at_turn()) continue;
        loop->trips.base = walker.index()[0];
        truncate(entry + 1);
        set_next(entry);
        return true;
    }
    return false;
}

// Makes a loop of three groups on a line. The shortest body is tried first.
bool NestRecogniser::create() {
    size_t accesses = 0;  // at the top, without a loop among them
    const size_t most = std::min(entries_.size(), 3 * limits_.body_max);
    while (accesses < most && lead(accesses).shape == 0) ++accesses;
    const size_t longest = std::max(std::min(limits_.mixed_max, entries_.size() / 3), accesses / 3);
    for (size_t body = 1; body <= longest; ++body) {
        if (!in_line(body)) continue;
        const bool single = body == 1 && !term(entries_.size() - 1)->is_loop();
        const size_t groups = single ? limits_.single_min : 3;
        if (groups > 3) {
            bool all = entries_.size() >= groups;
            for (size_t back = 1; all && back + 2 < groups; ++back) {
                const Term* last = term(entries_.size() - 1 - back);
                all = start_of(entries_.size() - 3 - back) + 2 ==
                          start_of(entries_.size() - 1 - back) &&
                      nodes_in_line(last[-2], last[-1], last[0]);
            }
            if (!all) continue;
        }
        if (!make_loop(body, groups)) continue;
        extend_backwards();
        return true;
    }
    return false;
}

bool NestRecogniser::in_line(size_t body) const {
    const size_t count = entries_.size();
    // The last terms of the groups rule out most bodies.
    const Entry &c = entries_[count - 1], &b = entries_[count - 1 - body],
                &a = entries_[count - 1 - 2 * body];
    if (!on_line(a.first.offset, b.first.offset, c.first.offset)) return false;
    if (a.shape != c.shape || b.shape != c.shape) return false;
    const size_t first = start_of(count - 3 * body), second = start_of(count - 2 * body),
                 third = start_of(count - body);
    const size_t nodes = second - first;
    if (third - second != nodes || terms_.size() - third != nodes) return false;
    for (size_t i = 0; i < nodes; ++i) {
        const Term &x = terms_[first + i], &y = terms_[second + i], &z = terms_[third + i];
        if (x.depth >= kDepthMax || !nodes_in_line(x, y, z)) return false;
    }
    return true;
}

// Replaces the last groups of `body` terms by a loop, made from the first two.
bool NestRecogniser::make_loop(size_t body, size_t groups) {
    const size_t entry = entries_.size() - groups * body;
    if (!build_guess(entry, entry + body, body)) return false;
    guess_[0].trips.base = static_cast<int64_t>(groups);
    truncate(entry);
    append(guess_.data());
    return true;
}

// Finds the entries just in front of the loop at the top that are its turn -1, from the child
// `child` on (a node of the loop). Returns the first of them, or the top if there are none.
size_t NestRecogniser::turn_before(uint32_t child) const {
    const size_t top = entries_.size() - 1;
    const size_t lowest = top > limits_.mixed_max ? top - limits_.mixed_max : 0;
    Walker begin;
    begin.start_at(term(top), -1, 0);
    while (!begin.ended() && begin.at() < child) begin.pass();
    if (begin.ended()) return top;
    const Access first = begin.current();
    for (size_t entry = top; entry-- > lowest;) {
        if (entries_[entry].first != first) continue;
        Walker walker = begin;
        bool found = true;
        for (size_t i = entry; found && i < top; ++i)
            found = !walker.ended() && walker.consume(term(i));
        if (found && walker.ended()) return entry;
    }
    return top;
}

// If the terms in front of the loop at the top are its turn -1, makes them that turn. They stand
// there if an inner loop turned too few times to be recognised. If they are only the end of that
// turn, the loop begins there instead.
void NestRecogniser::extend_backwards() {
    for (;;) {
        const size_t top = entries_.size() - 1;
        const Term* loop = term(top);
        if (!loop->is_loop() || loop->depth < 2) return;
        uint32_t child = 1;
        size_t entry = turn_before(child);
        while (entry == top) {
            child += loop[child].span;
            if (child >= loop->span) return;
            entry = turn_before(child);
        }
        rotate(entry, child);
        if (child > 1) return;
    }
}

// Lets the loop at the top begin at the child `child` of its turn -1, which is the entries from
// `entry` on. What its last turn then lacks goes behind it.
void NestRecogniser::rotate(size_t entry, uint32_t child) {
    const Term* loop = term(entries_.size() - 1);
    std::vector<Term>& turned = rotated_;
    turned.assign(loop, loop + 1);
    turned.insert(turned.end(), loop + child, loop + loop->span);
    for (size_t i = 1; i < turned.size(); ++i) {
        for (Value* value : {&turned[i].offset, &turned[i].size, &turned[i].trips})
            value->base = subtract(value->base, value->step[0]);
    }
    turned.insert(turned.end(), loop + 1, loop + child);
    if (child == 1) ++turned[0].trips.base;
    scratch_.assign(loop, loop + loop->span);
    truncate(entry);
    append(turned.data());
    if (child == 1) return;
    const Steps last{scratch_[0].trips.base - 1};
    for (uint32_t i = child; i < scratch_[0].span; i += scratch_[i].span)
        append_filled(&scratch_[i], last, 1);
}

}  // namespace penstock::access
