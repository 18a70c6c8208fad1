// Terms, which form the stack of the loop recogniser, and the walk through them.
//
// A term is a flat preorder list of nodes, as in an access program, but of fixed size. Nothing here
// allocates. Values wrap around on overflow, and the caller must check. Pure values; one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "access/program.h"

namespace penstock::access {

[[nodiscard]] constexpr int64_t add(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
[[nodiscard]] constexpr int64_t subtract(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
[[nodiscard]] constexpr int64_t multiply(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

using Steps = std::array<int64_t, kDepthMax>;

// base + sum of step[d] * index of the d-th loop, counted from the term's own root.
struct Value {
    int64_t base = 0;
    Steps step{};
    [[nodiscard]] int64_t at(const Steps& index, size_t depth) const {
        int64_t sum = base;
        for (size_t d = 0; d < depth; ++d) sum = add(sum, multiply(step[d], index[d]));
        return sum;
    }
    friend constexpr bool operator==(const Value&, const Value&) = default;
};

struct Term {
    NodeKind kind = NodeKind::kAccess;
    uint8_t depth = 0;      // loops in it, including this one
    uint16_t children = 0;  // of a loop: terms directly in it
    uint32_t span = 1;      // nodes of the term, including this one
    uint32_t source = 0;    // kDeltas, kList, kRandom: the program's node
    Value offset, size, trips;
    [[nodiscard]] bool is_loop() const { return kind == NodeKind::kLoop; }
};

[[nodiscard]] Term plain(const Access& access);
// Returns a hash of all values but the bases: terms of equal kinds and steps have equal shapes.
[[nodiscard]] uint32_t shape_of(const Term* term);
// Returns the first access of a term.
[[nodiscard]] const Term& first_leaf(const Term* term);
// Returns how many accesses a term has, as if no trip count depended on an index; at most 2^20.
[[nodiscard]] uint32_t weight(const Term* term);

// Wraps all nodes in one more loop: root values stay, and steps move one place outwards.
void wrap(std::span<Term> nodes);
// Fills in the outer `depth` indices of a node of a nest. Steps move that many places inwards.
void fill_in(Term* node, const Steps& index, size_t depth);

// A walk through terms, access by access. It points to the terms and must not outlive them.
class Walker {
public:
    // Starts at the first access. `program` is needed only for kDeltas and kList.
    void start(const Term* terms, uint32_t count, const Program* program = nullptr);
    // Starts in a single loop at the beginning of turn `turn`. Its end is unknown unless `trips` is
    // given.
    void start_at(const Term* loop, int64_t turn, int64_t trips = int64_t{kTripsMax});
    // Continues the walk on a copy of the terms.
    void move_to(const Term* terms) { terms_ = terms; }

    [[nodiscard]] bool ended() const { return at_ >= count_; }
    // Returns the access at which the walk stands. Requires !ended().
    [[nodiscard]] Access current() const;
    void advance();
    void skip(uint64_t accesses);
    // Skips the rest of the current part of the root loop: a loop or an access.
    void pass();
    // Skips a term that equals what comes next, even if that is part of a loop. Returns false if it
    // does not; the walk's position is then undefined.
    bool consume(const Term* term);

    [[nodiscard]] size_t depth() const { return depth_; }
    [[nodiscard]] uint32_t at() const { return at_; }
    [[nodiscard]] uint32_t loop(size_t depth) const { return loop_[depth]; }
    [[nodiscard]] const Steps& index() const { return index_; }
    // Returns how many surrounding loops, outermost first, have not turned or ended since the walk
    // stood at `before`.
    [[nodiscard]] size_t loops_kept(const Walker& before) const;
    // Returns whether the walk stands at the beginning of a turn of the outermost loop.
    [[nodiscard]] bool at_turn() const { return depth_ > 0 && fresh(0); }

private:
    void settle();
    [[nodiscard]] int64_t first_turn(uint32_t at, size_t depth) const;
    void enter_leaf();
    [[nodiscard]] bool fresh(size_t depth) const;
    [[nodiscard]] bool matches_from(const Term* term, size_t depth) const;

    const Term* terms_ = nullptr;
    const Program* program_ = nullptr;
    uint32_t count_ = 0, at_ = 0;
    size_t depth_ = 0;
    std::array<uint32_t, kDepthMax> loop_{};
    Steps index_{}, trips_{};
    // kDeltas and kList: the position inside. kDeltas: the access there.
    uint64_t inside_ = 0, inside_end_ = 0;
    Access running_;
};

}  // namespace penstock::access
