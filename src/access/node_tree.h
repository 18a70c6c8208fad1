// A program's nodes as trees, and what folding does to them: an index gets a value, a loop is put
// around, two trees are compared. Arithmetic is checked. Think times are left out. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "access/program.h"

namespace penstock::access {

struct NodeTree {
    Node node;  // `body` is 0
    std::vector<NodeTree> body;
    friend bool operator==(const NodeTree&, const NodeTree&) = default;
};

[[nodiscard]] std::vector<NodeTree> trees_of(std::span<const Node> nodes);
[[nodiscard]] std::vector<Node> nodes_of(std::span<const NodeTree> trees);
[[nodiscard]] size_t node_count(const NodeTree& tree);

// All of these: false where a number would overflow; the tree is then spoiled.

// Adds to the bases of the offset and the size.
[[nodiscard]] bool add_base(Node* node, int64_t offset, int64_t size);
// Takes the loop at `level` away from around the tree, its index being `index`.
[[nodiscard]] bool fix_index(NodeTree* tree, size_t level, int64_t index);
// The loop's index counts from `by` on: what it holds at index 0 is what it held at `by`.
[[nodiscard]] bool move_start(NodeTree* loop, size_t level, int64_t by);
// Appends to `steps` what is to be added to the bases of `a` to get those of `b`; also false where
// they differ in anything else.
[[nodiscard]] bool differences(const NodeTree& a, const NodeTree& b, std::vector<int64_t>* steps);
// Puts a loop around at `level`, on whose index the bases depend with the factors from `*steps` on;
// they are in the order of differences(). Also false where loops would nest too deep.
[[nodiscard]] bool insert_loop(NodeTree* tree, size_t level, const int64_t** steps);
// Takes the loop at `level` away, on which nothing depends that matters.
void remove_loop(NodeTree* tree, size_t level);
// Whether a turn of the loop at `level` moves everything by as much as `trips` turns of the next.
[[nodiscard]] bool goes_on(const NodeTree& tree, size_t level, int64_t trips);
// Writes a delta unit of constant trips as a loop of single accesses and the last access.
[[nodiscard]] bool unfold_deltas(const NodeTree& tree, size_t level, size_t room,
                                 std::vector<NodeTree>* out);

}  // namespace penstock::access
