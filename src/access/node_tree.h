// A program's nodes as trees, and the operations of folding: an index gets a value, a loop is put
// around trees, two trees are compared. Arithmetic is checked. Think times are left out. Pure.
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

// The functions below return false if a number would overflow; the tree is then invalid.

// Adds to the bases of the offset and the size.
[[nodiscard]] bool add_base(Node* node, int64_t offset, int64_t size);
// Removes the loop at `level` from around the tree; its index becomes `index`.
[[nodiscard]] bool fix_index(NodeTree* tree, size_t level, int64_t index);
// Moves the start of the loop's index to `by`: the new index 0 is the old index `by`.
[[nodiscard]] bool move_start(NodeTree* loop, size_t level, int64_t by);
// Appends to `steps` what must be added to the bases of `a` to get those of `b`. Also returns false
// if they differ in anything else.
[[nodiscard]] bool differences(const NodeTree& a, const NodeTree& b, std::vector<int64_t>* steps);
// Puts a loop around the tree at `level`. The bases depend on its index with the factors from
// `*steps` on, in the order of differences(). Also returns false if loops would nest too deep.
[[nodiscard]] bool insert_loop(NodeTree* tree, size_t level, const int64_t** steps);
// Removes the loop at `level`. Nothing that matters may depend on it.
void remove_loop(NodeTree* tree, size_t level);
// Returns whether a turn of the loop at `level` moves everything as far as `trips` turns of the
// next loop.
[[nodiscard]] bool goes_on(const NodeTree& tree, size_t level, int64_t trips);
// Writes a delta unit of constant trips as a loop of single accesses and the last access.
[[nodiscard]] bool unfold_deltas(const NodeTree& tree, size_t level, size_t room,
                                 std::vector<NodeTree>* out);

}  // namespace penstock::access
