// Trees of nodes: see node_tree.h.
#include "access/node_tree.h"

#include <algorithm>

#include "access/linear_form.h"

namespace penstock::access {
namespace {

bool add_product(int64_t* to, int64_t a, int64_t b) {
    int64_t product = 0;
    return !__builtin_mul_overflow(a, b, &product) && !__builtin_add_overflow(*to, product, to);
}

// Calls visit(affine) for the three affines of each node until it returns false.
template <class Tree, class Visit>
bool for_each_affine(Tree* tree, Visit visit) {
    if (!visit(tree->node.offset) || !visit(tree->node.size) || !visit(tree->node.trips)) {
        return false;
    }
    return std::all_of(tree->body.begin(), tree->body.end(),
                       [&](auto& inner) { return for_each_affine(&inner, visit); });
}

void drop_level(Affine* affine, size_t level) {
    auto& per = affine->per_loop;
    std::copy(per.begin() + static_cast<ptrdiff_t>(level) + 1, per.end(),
              per.begin() + static_cast<ptrdiff_t>(level));
    per.back() = 0;
}

// Returns how deep the loops of a tree nest, including its own.
size_t height(const NodeTree& tree) {
    size_t most = 0;
    for (const NodeTree& inner : tree.body) most = std::max(most, height(inner));
    return most + (tree.node.kind == NodeKind::kLoop ? 1 : 0);
}

bool same_but_for_base(const Affine& a, const Affine& b) {
    return a.per_loop == b.per_loop && a.per_rank == b.per_rank;
}

bool step_between(const Affine& a, const Affine& b, std::vector<int64_t>* steps) {
    int64_t step = 0;
    if (!same_but_for_base(a, b) || __builtin_sub_overflow(b.base, a.base, &step)) return false;
    steps->push_back(step);
    return step != INT64_MIN;
}

}  // namespace

std::vector<NodeTree> trees_of(std::span<const Node> nodes) {
    std::vector<NodeTree> trees;
    for (size_t n = 0; n < nodes.size(); n += 1 + nodes[n].body) {
        NodeTree& tree = trees.emplace_back();
        tree.node = nodes[n];
        tree.node.body = 0;
        tree.node.think = {};
        tree.body = trees_of(nodes.subspan(n + 1, nodes[n].body));
    }
    return trees;
}

std::vector<Node> nodes_of(std::span<const NodeTree> trees) {
    std::vector<Node> nodes;
    for (const NodeTree& tree : trees) {
        const std::vector<Node> inner = nodes_of(tree.body);
        nodes.push_back(tree.node);
        nodes.back().body = static_cast<uint32_t>(inner.size());
        nodes.insert(nodes.end(), inner.begin(), inner.end());
    }
    return nodes;
}

size_t node_count(const NodeTree& tree) {
    size_t count = 1;
    for (const NodeTree& inner : tree.body) count += node_count(inner);
    return count;
}

bool add_base(Node* node, int64_t offset, int64_t size) {
    return add_product(&node->offset.base, offset, 1) && add_product(&node->size.base, size, 1);
}

bool fix_index(NodeTree* tree, size_t level, int64_t index) {
    return for_each_affine(tree, [&](Affine& affine) {
        if (!add_product(&affine.base, affine.per_loop[level], index)) return false;
        drop_level(&affine, level);
        return true;
    });
}

bool move_start(NodeTree* loop, size_t level, int64_t by) {
    return std::all_of(loop->body.begin(), loop->body.end(), [&](NodeTree& tree) {
        return for_each_affine(&tree, [&](Affine& affine) {
            return add_product(&affine.base, affine.per_loop[level], by);
        });
    });
}

bool differences(const NodeTree& a, const NodeTree& b, std::vector<int64_t>* steps) {
    const Node &one = a.node, &other = b.node;
    if (one.kind != other.kind || one.deltas != other.deltas || one.list != other.list ||
        a.body.size() != b.body.size()) {
        return false;
    }
    // A random node without an end is never joined.
    if (one.kind == NodeKind::kRandom && (one.trips == Affine{} || other.trips == Affine{})) {
        return false;
    }
    if (!step_between(one.offset, other.offset, steps) ||
        !step_between(one.size, other.size, steps) ||
        !step_between(one.trips, other.trips, steps)) {
        return false;
    }
    for (size_t i = 0; i < a.body.size(); ++i) {
        if (!differences(a.body[i], b.body[i], steps)) return false;
    }
    return true;
}

bool insert_loop(NodeTree* tree, size_t level, const int64_t** steps) {
    if (level + 1 + height(*tree) > kDepthMax) return false;
    return for_each_affine(tree, [&](Affine& affine) {
        auto& per = affine.per_loop;
        std::copy_backward(per.begin() + static_cast<ptrdiff_t>(level), per.end() - 1, per.end());
        per[level] = *(*steps)++;
        return true;
    });
}

void remove_loop(NodeTree* tree, size_t level) {
    for_each_affine(tree, [&](Affine& affine) {
        drop_level(&affine, level);
        return true;
    });
}

bool goes_on(const NodeTree& tree, size_t level, int64_t trips) {
    return for_each_affine(&tree, [&](const Affine& affine) {
        return Wide{affine.per_loop[level]} == Wide{affine.per_loop[level + 1]} * trips;
    });
}

bool unfold_deltas(const NodeTree& tree, size_t level, size_t room, std::vector<NodeTree>* out) {
    const Node& node = tree.node;
    if (node.trips != Affine{node.trips.base, {}, {}}) return false;
    NodeTree first;  // the access at the beginning of a turn
    first.node.offset = node.offset;
    first.node.size = node.size;
    if (node.trips.base <= 0) {
        out->push_back(first);
        return true;
    }
    if (level >= kDepthMax || node.deltas.size() + 2 > room) return false;
    NodeTree loop;
    loop.node.kind = NodeKind::kLoop;
    loop.node.trips = node.trips;
    int64_t offset = 0, size = 0;
    for (const Delta& delta : node.deltas) {
        NodeTree access = first;
        if (!add_base(&access.node, offset, size)) return false;
        loop.body.push_back(access);
        if (!add_product(&offset, delta.offset, 1) || !add_product(&size, delta.size, 1)) {
            return false;
        }
    }
    for (NodeTree& access : loop.body) {
        access.node.offset.per_loop[level] = offset;
        access.node.size.per_loop[level] = size;
    }
    NodeTree last = first;
    if (!add_product(&last.node.offset.base, offset, node.trips.base) ||
        !add_product(&last.node.size.base, size, node.trips.base)) {
        return false;
    }
    out->push_back(std::move(loop));
    out->push_back(std::move(last));
    return true;
}

}  // namespace penstock::access
