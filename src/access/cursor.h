// Walks through the accesses of a program, for one rank.
//
// Counts are computed in closed form. The accesses below a loop are a polynomial of its index (of
// degree at most 4, and piecewise if trips become negative). It is fitted to a few exact values and
// summed by Newton's formula. Bisection of that sum finds a position in a triangular nest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "access/linear_form.h"
#include "access/program.h"

namespace penstock::access {

// Holds the program's address: the program must stay and must not change. It must have passed
// validate(), and the rank must be in its key. Allocates only at construction. One thread.
class Cursor {
public:
    explicit Cursor(const Program& program, uint64_t rank = 0);

    // Returns the next access. Returns nothing after the last one, or at a random node; random()
    // tells which.
    std::optional<Access> next();
    // Stores up to out.size() accesses and returns how many.
    size_t next(std::span<Access> out);
    // Moves to the access with this number (0: the first). Returns false if there are fewer; the
    // cursor is then behind the last one. It takes O(depth) for loops whose trips depend on no
    // others, else O(depth log trips). Each level looks at every node of one body.
    bool seek(uint64_t position);
    // Returns the number of the access that next() returns.
    [[nodiscard]] uint64_t position() const { return position_; }
    // Returns the count of accesses, including those of random nodes. Returns nothing if a random
    // node has no end.
    [[nodiscard]] std::optional<uint64_t> count() const;
    // Returns whether any access of the program touches this byte. Random nodes touch none. It
    // takes O(depth) for nests in which one turn of a loop does not reach into the next (the
    // strides are divided out), and O(list) for lists. Nests that overlap themselves are searched
    // for at most kContainsSteps steps; if that is not enough, the answer is true.
    [[nodiscard]] bool contains(uint64_t byte) const;
    // Returns whether the cursor is at a random node. Nothing is known there until seek() goes
    // elsewhere.
    [[nodiscard]] bool random() const { return random_; }

    static constexpr size_t kContainsSteps = 4096;

private:
    using Indices = std::array<uint64_t, kDepthMax>;

    // The properties of a node for this rank. `level`: loops around it. Bit d of a mask: the index
    // of loop d.
    struct Shape {
        size_t level = 0;
        Wide offset = 0, size = 0, trips = 0;  // bases, with the rank's share
        uint32_t trips_mask = 0;               // indices on which its own trips depend
        uint32_t count_mask = 0;               // indices on which its count of accesses depends
        size_t degree = 0;                     // bound of the degree of its count, as a polynomial
        bool endless = false;
        // Counts that depend on no index are computed once.
        bool counted = false, even = false;  // of the node; of one turn of the loop
        uint64_t count = 0, turn_count = 0;
    };
    struct Loop {
        size_t node = 0;
        uint64_t trips = 0;
    };
    // The counts of the turns of a loop from `first` on: Newton's forward differences at `first`.
    struct Counts {
        uint64_t first = 0;
        size_t terms = 0;
        std::array<Wide, kDepthMax + 2> differences{};
        [[nodiscard]] uint64_t of_turns(uint64_t turns) const;  // the sum from `first` on
    };

    void add_shapes(size_t begin, size_t end, size_t level);
    [[nodiscard]] size_t end_of(size_t node) const;
    [[nodiscard]] bool varies(size_t loop) const;
    [[nodiscard]] uint64_t trips_of(size_t node, const Indices& at) const;
    [[nodiscard]] Access access_of(size_t node, const Indices& at) const;
    [[nodiscard]] uint64_t count_of(size_t node, Indices at) const;
    [[nodiscard]] uint64_t count_of_body(size_t loop, const Indices& at) const;
    [[nodiscard]] Counts fit(size_t loop, uint64_t first, uint64_t turns, Indices at) const;
    // Calls visit(counts, turns) for each piece of the loop, until it returns true.
    template <class Visit>
    void for_each_piece(size_t loop, uint64_t trips, const Indices& at, Visit visit) const;

    [[nodiscard]] bool ranges_around(size_t leaf, Ranges* ranges) const;
    [[nodiscard]] Form form_of(const Affine& affine, Wide base) const;
    [[nodiscard]] bool leaf_contains(size_t leaf, uint64_t byte, size_t* steps) const;

    void settle();
    void arrive(size_t leaf, uint64_t within);
    void leave();
    bool descend(size_t begin, size_t end, uint64_t left);
    uint64_t take_turns(size_t loop, uint64_t trips, uint64_t left);

    const Program* program_;
    std::array<uint64_t, kGridMax> coordinates_{};
    std::vector<Shape> shapes_;  // parallel to the program's nodes

    uint64_t position_ = 0;
    bool random_ = false;
    Indices at_{};                          // indices of the surrounding loops
    std::array<Loop, kDepthMax> loops_{};   // the surrounding loops
    size_t depth_ = 0;                      // how many loops surround the cursor
    size_t node_ = 0;                       // position of the cursor; behind the last: nodes.size()
    uint64_t within_ = 0, leaf_count_ = 0;  // number of the next access in node_, and its count
    Access last_;                           // kDeltas: the access before the next
    size_t delta_ = 0;                      // kDeltas: the delta that leads to it
};

}  // namespace penstock::access
