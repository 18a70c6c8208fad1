// Recognises nested loops in a stream of accesses, after Ketterlin and Clauss, CGO 2008.
//
// The stream so far is a stack of terms, which are accesses and loops. Groups of equally many terms
// at its top become a loop once three of them lie on a line, in each offset, size and trip count.
// The *guess* is a loop near the top, or one that only two groups or one group suggest. While
// accesses follow the guess it is walked through, which costs one comparison per access. An access
// that does not follow turns the walked part back into terms, and the stack is folded again. Only
// that takes more work, and the limits bound it.
//
// The online detector uses small limits and drops the oldest terms. The offline one uses large
// limits and keeps them. Allocates only at construction (except for `spill`). Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "access/nest_term.h"

namespace penstock::access {

struct NestLimits {
    size_t entries = 128;   // terms on the stack; more than three times body_max
    size_t nodes = 192;     // nodes of all terms; a guess has at most half as many
    size_t body_max = 32;   // terms in the body of a loop of accesses
    size_t mixed_max = 8;   // terms in a body that has loops too
    size_t guess_max = 5;   // terms in a group; one or two groups suggest a loop
    size_t begun_max = 2;   // terms by which a begun turn may exceed a whole one
    unsigned tries = 2;     // candidates for a guess that are built at once
    size_t single_min = 3;  // accesses in a line that make a loop on their own
};

class NestRecogniser {
public:
    // Terms that drop off the bottom of the stack are appended to `spill`, unless it is null.
    explicit NestRecogniser(const NestLimits& limits, std::vector<Term>* spill = nullptr);

    // has_guess() returns whether there is a guess that predicts the next access; follows() returns
    // whether `access` is the one predicted.
    [[nodiscard]] bool has_guess() const { return guessing_; }
    [[nodiscard]] bool follows(const Access& access) const {
        return guessing_ && walker_.current() == access;
    }
    // Advances the guess by the access for which follows() returned true.
    void advance();
    // Adds any other accesses. With `thorough`, tries all candidates for the guess, else only those
    // that cost little.
    void learn(std::span<const Access> accesses, bool thorough = true);
    // Searches for the best guess again.
    void search();
    // Prefetches the memory that learn() will need. If thousands of streams take turns their memory
    // is cold, and consecutive cache misses would cost more than the work.
    void prepare() const;
    // Turns the guess into terms.
    void finish();
    void reset();

    // Returns the walk through the guess, at the next access. Its end may be known.
    [[nodiscard]] const Walker& ahead() const { return walker_; }
    // Returns the guessed loop, root first. Its trip count is kTripsMax if the end is not known.
    [[nodiscard]] const std::vector<Term>& guess() const { return guess_; }
    // Returns the count of accesses that support the guess, besides those that it was made from.
    [[nodiscard]] uint32_t evidence() const { return evidence_; }
    // Returns whether the guess is more than a stride, has turned twice, and has begun another
    // turn. Three groups do not lie on a line by chance.
    [[nodiscard]] bool in_third_turn() const {
        if (!guessing_ || guess_.size() == 2) return false;
        return guess_groups_ == 2 ? evidence_ > two_turns_ : walker_.index()[0] > 2;
    }
    // Returns how many accesses just before the next one are in the same loop, if that has no other
    // parts.
    [[nodiscard]] int64_t run() const {
        const size_t depth = walker_.depth();
        return guess_[walker_.loop(depth - 1)].span == 2 ? walker_.index()[depth - 1] : 0;
    }
    // Returns whether no access has confirmed the position of what the guess predicts next. That is
    // the third turn after two, or a part that the second turn has not reached.
    [[nodiscard]] bool is_blind() const;
    // Returns whether the last of these accesses may begin the third turn of groups, while the
    // guess is in their second one. None of these accesses follows the guess.
    [[nodiscard]] bool may_begin_third(std::span<const Access> behind) const;
    // Returns the stack's terms in order, without those in the guess.
    [[nodiscard]] const std::vector<Term>& terms() const { return terms_; }
    [[nodiscard]] size_t guess_start() const {
        return guessing_ ? start_of(guess_entry_) : terms_.size();
    }

private:
    // The facts that rule out most candidates, close together in memory.
    struct Entry {
        uint32_t start = 0;  // in terms_
        uint32_t shape = 0;  // 0: an access
        Access first;
        Access next = {};  // of a loop: begin of its next turn; kUnknown: ask the walk
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
    unsigned tries_ = 0;  // candidates that may still be built in this search

    bool guessing_ = false;
    size_t guess_entry_ = 0;  // entries from here on are part of the guess
    // The count of groups that the guess was made from; 0: it is a loop of the stack.
    size_t guess_groups_ = 0, guess_body_ = 0;
    uint32_t evidence_ = 0;
    uint32_t two_turns_ = 0;  // evidence at the end of the second of two groups
    Walker walker_;
};

}  // namespace penstock::access
