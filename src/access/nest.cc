#include "access/nest.h"

#include <algorithm>

namespace penstock::access {
namespace {

// One access can complete a loop, that one the turn of the next one around, and so on; with the
// loops that three groups make, twice the depth.
constexpr unsigned kFoldsMax = 2 * kDepthMax;

constexpr uint32_t kEvidenceMax = 1u << 30;

bool in_line(int64_t a, int64_t b, int64_t c) { return subtract(b, a) == subtract(c, b); }

// Whether three nodes differ in their bases only, and those lie on a line.
bool nodes_in_line(const Term& a, const Term& b, const Term& c) {
    const auto alike = [](const Term& x, const Term& y) {
        return x.kind == y.kind && x.span == y.span && x.offset.step == y.offset.step &&
               x.size.step == y.size.step && x.trips.step == y.trips.step;
    };
    return alike(a, b) && alike(b, c) && in_line(a.offset.base, b.offset.base, c.offset.base) &&
           in_line(a.size.base, b.size.base, c.size.base) &&
           in_line(a.trips.base, b.trips.base, c.trips.base);
}

}  // namespace

NestRecogniser::NestRecogniser(const NestLimits& limits, std::vector<Term>* spill)
    : limits_(limits), spill_(spill) {
    terms_.reserve(limits.nodes);
    scratch_.reserve(limits.nodes);
    rotated_.reserve(limits.nodes);
    guess_.reserve(limits.nodes);
    entries_.reserve(limits.entries);
    leads_.reserve(64);
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

// Lets the oldest terms go until another term of so many nodes fits, and some more.
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
    for (uint32_t& begin : entries_) begin -= static_cast<uint32_t>(start);
}

void NestRecogniser::append(const Term* term) {
    make_room(term->span);
    entries_.push_back(static_cast<uint32_t>(terms_.size()));
    terms_.insert(terms_.end(), term, term + term->span);
}

// Appends a term from inside the guess with the indices around filled in. A loop that turns once
// or twice comes as what is inside, as it would have been read.
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
    entries_.push_back(static_cast<uint32_t>(start));
    for (uint32_t i = 0; i < term->span; ++i) terms_.push_back(filled_in(term[i], index, depth));
    set_shape({&terms_[start], term->span});
}

// Appends what the walk has done of the loop at `depth`: its whole turns, then the begun one.
void NestRecogniser::append_started(size_t depth) {
    const uint32_t at = walker_.loop(depth);
    const Term* loop = &guess_[at];
    const Steps& index = walker_.index();
    const int64_t turns = index[depth];
    if (turns >= 3) {
        // Its own trips end where the walk stands.
        Term ended = *loop;
        ended.trips = {turns, {}};
        scratch_.assign(guess_.begin() + at, guess_.begin() + at + loop->span);
        scratch_[0] = ended;
        append_filled(scratch_.data(), index, depth);
        if (depth == 0) extend_backwards();
    } else {
        Steps done = index;
        for (done[depth] = 0; done[depth] < turns; ++done[depth]) {
            for (uint32_t i = 1; i < loop->span; i += loop[i].span) {
                append_filled(loop + i, done, depth + 1);
            }
        }
    }
    if (walker_.ended()) return;
    for (uint32_t i = at + 1; i < at + loop->span; i += guess_[i].span) {
        if (i + guess_[i].span <= walker_.at()) {
            append_filled(&guess_[i], index, depth + 1);
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
    finish();
    find_guess();
}

void NestRecogniser::learn(const Access& access) {
    finish();
    const Term term = plain(access);
    append(&term);
    fold();
    find_guess();
}

void NestRecogniser::finish() {
    if (!guessing_) return;
    guessing_ = false;
    truncate(guess_entry_);
    append_started(0);
    fold();
}

void NestRecogniser::fold() {
    for (unsigned i = 0; i < kFoldsMax; ++i) {
        if (!absorb() && !create()) return;
    }
}

// Whether the entries from `entry` on are what comes next in the walk.
bool NestRecogniser::consume_from(Walker& walker, size_t entry) const {
    for (; entry < entries_.size(); ++entry) {
        if (!walker.consume(term(entry))) return false;
    }
    return true;
}

// The terms behind a loop become its next turns, if they are.
bool NestRecogniser::absorb() {
    const size_t count = entries_.size();
    const size_t lowest = count > limits_.body_max + 1 ? count - limits_.body_max - 1 : 0;
    for (size_t entry = count - (count > 0); entry-- > lowest;) {
        Term* loop = &terms_[entries_[entry]];
        if (!loop->is_loop()) continue;
        Walker walker;
        walker.start_at(loop, loop->trips.base);
        if (!consume_from(walker, entry + 1) || walker.ended() || !walker.at_turn()) continue;
        loop->trips.base = walker.index()[0];
        truncate(entry + 1);
        return true;
    }
    return false;
}

// Three groups on a line become a loop; the shortest body is tried first.
bool NestRecogniser::create() {
    const size_t longest = std::min(limits_.body_max, entries_.size() / 3);
    for (size_t body = 1; body <= longest; ++body) {
        if (!in_line(body)) continue;
        const bool single = body == 1 && !term(entries_.size() - 1)->is_loop();
        const size_t groups = single ? limits_.single_min : 3;
        if (groups > 3) {
            bool all = entries_.size() >= groups;
            for (size_t back = 1; all && back + 2 < groups; ++back) {
                const Term* last = term(entries_.size() - 1 - back);
                all = entries_[entries_.size() - 3 - back] + 2 ==
                          entries_[entries_.size() - 1 - back] &&
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
    // Most bodies are ruled out by their last terms.
    const Term *c = term(count - 1), *b = term(count - 1 - body), *a = term(count - 1 - 2 * body);
    if (a->shape != c->shape || b->shape != c->shape || !nodes_in_line(*a, *b, *c)) return false;
    const size_t first = entries_[count - 3 * body], second = entries_[count - 2 * body],
                 third = entries_[count - body];
    const size_t nodes = second - first;
    if (third - second != nodes || terms_.size() - third != nodes) return false;
    for (size_t i = 0; i < nodes; ++i) {
        const Term &x = terms_[first + i], &y = terms_[second + i], &z = terms_[third + i];
        if (x.depth >= kDepthMax || !nodes_in_line(x, y, z)) return false;
    }
    return true;
}

// Replaces the last groups of `body` terms by a loop, from the first two.
bool NestRecogniser::make_loop(size_t body, size_t groups) {
    const size_t entry = entries_.size() - groups * body;
    if (!build_guess(entry, entry + body, body)) return false;
    guess_[0].trips.base = static_cast<int64_t>(groups);
    truncate(entry);
    append(guess_.data());
    return true;
}

// Whether the entries just in front of the loop at the top are its turn -1 from the child `child`
// on (a node of the loop); the first of them, or the top itself if not.
size_t NestRecogniser::turn_before(uint32_t child) const {
    const size_t top = entries_.size() - 1;
    const size_t lowest = top > limits_.body_max ? top - limits_.body_max : 0;
    Walker begin;
    begin.start_at(term(top), -1, 0);
    while (!begin.ended() && begin.at() < child) begin.pass();
    if (begin.ended()) return top;
    for (size_t entry = top; entry-- > lowest;) {
        Walker walker = begin;
        bool found = true;
        for (size_t i = entry; found && i < top; ++i)
            found = !walker.ended() && walker.consume(term(i));
        if (found && walker.ended()) return entry;
    }
    return top;
}

// Terms in front of the loop at the top that are its turn -1 become that turn. They are there where
// an inner loop turned too seldom to be seen as one. If they are the end of that turn only, the
// loop begins there instead.
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

// The loop at the top begins at the child `child` of its turn -1, which is the entries from `entry`
// on; what its last turn then lacks goes behind it.
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
    set_shape(turned);
    scratch_.assign(loop, loop + loop->span);
    truncate(entry);
    append(turned.data());
    if (child == 1) return;
    const Steps last{scratch_[0].trips.base - 1};
    for (uint32_t i = child; i < scratch_[0].span; i += scratch_[i].span)
        append_filled(&scratch_[i], last, 1);
}

}  // namespace penstock::access
