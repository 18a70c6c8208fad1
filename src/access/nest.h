// Nested loop recognition on a stream of accesses, after Ketterlin and Clauss, CGO 2008.
//
// The stream so far is a stack of terms: accesses and loops. Groups of equally many terms at its
// top become a loop once three of them lie on a line, in every offset, size and trip count. A loop
// near the top, or one that only two groups or a single one suggest, is the *guess*: while accesses
// follow it they are walked through it and cost a comparison each. An access that does not follow
// turns what was walked back into terms, and the stack is folded anew: that is the only place
// where work is done, and it is bounded by the limits.
//
// The online detector uses it with small limits and forgets the oldest terms; the offline one with
// large limits, and it keeps them. Allocates at construction only (but for `spill`). Pure; one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "access/nest_term.h"

namespace penstock::access {

struct NestLimits {
    size_t entries = 128;   // terms on the stack; three times body_max, and more
    size_t nodes = 192;     // nodes of all of them; a guess has at most half as many
    size_t body_max = 32;   // terms in the body of a loop, if they are accesses
    size_t mixed_max = 8;   // the same, if there are loops among them
    size_t guess_max = 5;   // terms in a group of which one or two suggest a loop
    size_t begun_max = 2;   // terms by which a begun turn may exceed a whole one
    unsigned tries = 2;     // candidates for a guess that are built at once
    size_t single_min = 3;  // accesses in a line that make a loop of themselves
};

class NestRecogniser {
public:
    // Terms that fall off the bottom of the stack are appended to `spill`; null: forgotten.
    explicit NestRecogniser(const NestLimits& limits, std::vector<Term>* spill = nullptr);

    // Whether there is a guess that tells the next access, and whether it is this one.
    [[nodiscard]] bool has_guess() const { return guessing_; }
    [[nodiscard]] bool follows(const Access& access) const {
        return guessing_ && walker_.current() == access;
    }
    // The access that follows() has come.
    void advance();
    // Any other accesses have come. `thorough`: every candidate is tried for the guess; else those
    // that cost little.
    void learn(std::span<const Access> accesses, bool thorough = true);
    // Looks for the best guess anew.
    void search();
    // learn() may come soon: what it will look at is brought near. Where thousands of streams take
    // turns their memory is cold, and its misses one after the other would cost more than the work.
    void prepare() const;
    // Turns the guess into terms.
    void finish();
    void reset();

    // The walk through the guess, at the next access; its end may be known.
    [[nodiscard]] const Walker& ahead() const { return walker_; }
    // The loop that is guessed, root first; its trip count is kTripsMax where the end is not known.
    [[nodiscard]] const std::vector<Term>& guess() const { return guess_; }
    // Accesses that speak for the guess, beyond those that it was made from.
    [[nodiscard]] uint32_t evidence() const { return evidence_; }
    // Whether the guess is more than a stride, and has turned twice and begun to turn once more: by
    // chance three groups do not lie on a line.
    [[nodiscard]] bool in_third_turn() const {
        if (!guessing_ || guess_.size() == 2) return false;
        return guess_groups_ == 2 ? evidence_ > two_turns_ : walker_.index()[0] > 2;
    }
    // Accesses just before the next one that are with it in one loop of nothing else.
    [[nodiscard]] int64_t run() const {
        const size_t depth = walker_.depth();
        return guess_[walker_.loop(depth - 1)].span == 2 ? walker_.index()[depth - 1] : 0;
    }
    // Of a guess: whether nothing has shown that what it says next is at that place: the third turn
    // of what has turned twice, or what the second turn has not come to yet.
    [[nodiscard]] bool is_blind() const;
    // Whether the last of these accesses, none of which follows the guess, may begin the third turn
    // of groups whose second the guess is in.
    [[nodiscard]] bool may_begin_third(std::span<const Access> behind) const;
    // The stack's terms, in order, without what the guess stands for.
    [[nodiscard]] const std::vector<Term>& terms() const { return terms_; }
    [[nodiscard]] size_t guess_start() const {
        return guessing_ ? start_of(guess_entry_) : terms_.size();
    }

private:
    // What most candidates are ruled out by, close together.
    struct Entry {
        uint32_t start = 0;  // in terms_
        uint32_t shape = 0;  // 0: an access
        Access first;
        Access next = {};  // of a loop: where its next turn would begin; kUnknown: the walk must
                           // tell
    };

    [[nodiscard]] size_t start_of(size_t entry) const {
        return entry < entries_.size() ? entries_[entry].start : terms_.size();
    }
    [[nodiscard]] const Term* term(size_t entry) const { return &terms_[entries_[entry].start]; }
    void truncate(size_t entry);
    void append(const Term* term);
    void append_filled(const Term* term, const Steps& index, size_t depth);
    void append_turns();
    void append_started(size_t depth);
    void append_begun(size_t depth);
    void make_room(size_t nodes);
    void append_entry(size_t start);
    void set_next(size_t entry);

    // nest.cc: folding.
    void fold();
    bool absorb();
    bool create();
    [[nodiscard]] bool in_line(size_t body) const;
    bool make_loop(size_t body, size_t groups);
    void extend_backwards();
    [[nodiscard]] size_t turn_before(uint32_t child) const;
    void rotate(size_t entry, uint32_t child);
    [[nodiscard]] bool may_turn(size_t entry) const;
    [[nodiscard]] bool consume_from(Walker& walker, size_t entry) const;

    // nest_guess.cc: what may come next.
    void find_guess(bool thorough);
    void find_widest();
    void find_third();
    bool note_loops();
    [[nodiscard]] size_t third_in_line(size_t end, std::span<const Access> behind,
                                       size_t most) const;
    static bool lie_in_line(const Entry* bottom, size_t body);
    [[nodiscard]] const Entry& lead(size_t from_top) const {
        return entries_[entries_.size() - 1 - from_top];
    }
    [[nodiscard]] bool may_begin(size_t first, size_t body, size_t entry) const;
    bool guess_open_loop(size_t entry);
    bool guess_of_two(size_t body, size_t partial);
    bool guess_of_one(size_t body, size_t partial);
    uint32_t take_steps(size_t entry);
    bool build_guess(size_t first, size_t second, size_t body);
    [[nodiscard]] uint32_t weight_of(size_t entry, size_t end) const;

    const NestLimits limits_;
    std::vector<Term>* spill_;
    std::vector<Term> terms_, scratch_, rotated_, guess_;
    std::vector<Entry> entries_;
    uint64_t loops_ = 0;  // bit i: the i-th entry from the top is a loop
    unsigned tries_ = 0;  // candidates that may still be built for the guess being looked for

    bool guessing_ = false;
    size_t guess_entry_ = 0;  // the stack's entries from here on are in the guess
    // It was made from so many groups of entries; 0: from a loop of the stack.
    size_t guess_groups_ = 0, guess_body_ = 0;
    uint32_t evidence_ = 0;
    uint32_t two_turns_ = 0;  // evidence of a guess of two groups at the end of the second
    Walker walker_;
};

}  // namespace penstock::access
