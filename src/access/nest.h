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
#include <vector>

#include "access/nest_term.h"

namespace penstock::access {

struct NestLimits {
    size_t entries = 128;   // terms on the stack; three times body_max, and more
    size_t nodes = 192;     // nodes of all of them; a guess has at most half as many
    size_t body_max = 32;   // terms in the body of a loop, for loops that three groups make
    size_t guess_max = 8;   // terms in a group of which one or two suggest a loop
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
    // Any other access has come.
    void learn(const Access& access);
    // Turns the guess into terms.
    void finish();
    void reset();

    // The walk through the guess, at the next access; its end may be known.
    [[nodiscard]] const Walker& ahead() const { return walker_; }
    // The loop that is guessed, root first; its trip count is kTripsMax where the end is not known.
    [[nodiscard]] const std::vector<Term>& guess() const { return guess_; }
    // Accesses that speak for the guess, beyond those that it was made from.
    [[nodiscard]] uint32_t evidence() const { return evidence_; }
    // The stack's terms, in order, without what the guess stands for.
    [[nodiscard]] const std::vector<Term>& terms() const { return terms_; }
    [[nodiscard]] size_t guess_start() const {
        return guessing_ ? start_of(guess_entry_) : terms_.size();
    }

private:
    struct Lead {  // of the i-th entry from the top
        Access first;
        uint32_t shape = 0;
    };

    [[nodiscard]] size_t start_of(size_t entry) const {
        return entry < entries_.size() ? entries_[entry] : terms_.size();
    }
    [[nodiscard]] const Term* term(size_t entry) const { return &terms_[entries_[entry]]; }
    void truncate(size_t entry);
    void append(const Term* term);
    void append_filled(const Term* term, const Steps& index, size_t depth);
    void append_started(size_t depth);
    void make_room(size_t nodes);

    // nest.cc: folding.
    void fold();
    bool absorb();
    bool create();
    [[nodiscard]] bool in_line(size_t body) const;
    bool make_loop(size_t body, size_t groups);
    void extend_backwards();
    [[nodiscard]] size_t turn_before(uint32_t child) const;
    void rotate(size_t entry, uint32_t child);
    [[nodiscard]] bool consume_from(Walker& walker, size_t entry) const;

    // nest_guess.cc: what may come next.
    void find_guess();
    void collect_leads();
    bool guess_open_loop(size_t entry);
    bool guess_of_two(size_t body, size_t partial);
    bool guess_of_one(size_t body, size_t partial);
    uint32_t take_steps(size_t entry);
    bool build_guess(size_t first, size_t second, size_t body);
    [[nodiscard]] uint32_t weight_of(size_t entry, size_t end) const;

    const NestLimits limits_;
    std::vector<Term>* spill_;
    std::vector<Term> terms_, scratch_, rotated_, guess_;
    std::vector<uint32_t> entries_;  // where each term begins in terms_
    std::vector<Lead> leads_;
    uint64_t loops_ = 0;  // bit i: the i-th entry from the top is a loop

    bool guessing_ = false;
    size_t guess_entry_ = 0;  // the stack's entries from here on are in the guess
    uint32_t evidence_ = 0;
    Walker walker_;
};

}  // namespace penstock::access
