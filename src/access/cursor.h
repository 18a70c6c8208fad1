// Walks through the accesses of a program, for one rank.
//
// Counting is closed: the accesses below a loop are a polynomial of its index (of degree at most 4,
// piecewise where trips turn negative), which is fitted to a few exact values and summed by
// Newton's formula; a position in a triangular nest is found by bisection of that sum.
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

// Keeps the program's address: it must stay, and must not change meanwhile. The program has passed
// validate(), and the rank is one of its key. Allocates at construction only. One thread.
class Cursor {
public:
    explicit Cursor(const Program& program, uint64_t rank = 0);

    // The next access; none behind the last, and none at a random node (random() says so).
    std::optional<Access> next();
    // Up to out.size() of them.
    size_t next(std::span<Access> out);
    // Goes to the access with this number (0: the first). False: there are fewer; the cursor is
    // then behind the last. O(depth) for loops whose trips do not depend on others, O(depth log
    // trips) else; each level looks at every node of one body.
    bool seek(uint64_t position);
    // Number of the access that next() returns.
    [[nodiscard]] uint64_t position() const { return position_; }
    // How many accesses there are, those of random nodes included; none: a random node without an
    // end.
    [[nodiscard]] std::optional<uint64_t> count() const;
    // Whether any access of the program touches this byte; random nodes touch none. O(depth) for
    // nests in which one turn of a loop does not reach into the next (the strides are divided out),
    // O(list) for lists. Nests that fold over themselves are searched, for at most kContainsSteps;
    // where that is not enough the answer is true.
    [[nodiscard]] bool contains(uint64_t byte) const;
    // At a random node: nothing can be told until seek() goes elsewhere.
    [[nodiscard]] bool random() const { return random_; }

    static constexpr size_t kContainsSteps = 4096;

private:
    using Indices = std::array<uint64_t, kDepthMax>;

    // What a node is for this rank. `level`: loops around it. Bit d of a mask: the index of loop d.
    struct Shape {
        size_t level = 0;
        Wide offset = 0, size = 0, trips = 0;  // bases, the rank's share included
        uint32_t trips_mask = 0;               // what its own trips depend on
        uint32_t count_mask = 0;               // what the count of its accesses depends on
        size_t degree = 0;                     // at most that of its count, as a polynomial
        bool endless = false;
        // Counts that depend on no index are taken once.
        bool counted = false, even = false;  // that of the node; of one turn of the loop
        uint64_t count = 0, turn_count = 0;
    };
    struct Loop {
        size_t node = 0;
        uint64_t trips = 0;
    };
    // Counts of the turns of a loop from `first` on: Newton's forward differences at `first`.
    struct Counts {
        uint64_t first = 0;
        size_t terms = 0;
        std::array<Wide, kDepthMax + 2> differences{};
        [[nodiscard]] uint64_t of_turns(uint64_t turns) const;  // those from `first` on, together
    };

    void add_shapes(size_t begin, size_t end, size_t level);
    [[nodiscard]] size_t end_of(size_t node) const;
    [[nodiscard]] bool varies(size_t loop) const;
    [[nodiscard]] uint64_t trips_of(size_t node, const Indices& at) const;
    [[nodiscard]] Access access_of(size_t node, const Indices& at) const;
    [[nodiscard]] uint64_t count_of(size_t node, Indices at) const;
    [[nodiscard]] uint64_t count_of_body(size_t loop, const Indices& at) const;
    [[nodiscard]] Counts fit(size_t loop, uint64_t first, uint64_t turns, Indices at) const;
    // Calls visit(counts, turns) for each piece of the loop until that returns true.
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
    std::vector<Shape> shapes_;  // beside the program's nodes

    uint64_t position_ = 0;
    bool random_ = false;
    Indices at_{};                          // indices of the loops around
    std::array<Loop, kDepthMax> loops_{};   // the loops around
    size_t depth_ = 0;                      // how many
    size_t node_ = 0;                       // where the cursor is; behind the last: nodes.size()
    uint64_t within_ = 0, leaf_count_ = 0;  // number of the next access in that node; of how many
    Access last_;                           // kDeltas: the access before the next
    size_t delta_ = 0;                      // and the delta that leads to it
};

}  // namespace penstock::access
