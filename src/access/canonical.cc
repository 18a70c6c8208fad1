// Folds and unfolds program trees: see canonical.h.
#include "access/canonical.h"

#include <algorithm>
#include <utility>

#include "access/linear_form.h"
#include "access/node_tree.h"
#include "access/validate.h"

namespace penstock::access {
namespace {

constexpr size_t kExpandedMax = 32;  // accesses of a list that is written out
constexpr size_t kGroupMax = 32;     // nodes that are tried as the body of a loop

// Returns the trips if they are constant; negative ones are 0. Returns -1 if they depend on
// something.
int64_t constant_trips(const Node& node) {
    if (node.trips != Affine{node.trips.base, {}, {}}) return -1;
    return std::max<int64_t>(node.trips.base, 0);
}

// Writes a tree in simpler nodes, unless it is in its simplest form. `room`: how many nodes may
// replace it.
bool unfold(const NodeTree& tree, size_t level, size_t room, std::vector<NodeTree>* out) {
    const Node& node = tree.node;
    const int64_t trips = constant_trips(node);
    switch (node.kind) {
        case NodeKind::kAccess:
            return false;
        case NodeKind::kRandom:
            return trips == 0 && node.trips.base < 0;  // 0 itself: no end
        case NodeKind::kLoop:
            if (trips != 0 && trips != 1 && !tree.body.empty()) return false;
            if (trips == 0) return true;
            *out = tree.body;
            return std::all_of(out->begin(), out->end(),
                               [level](NodeTree& inner) { return fix_index(&inner, level, 0); });
        case NodeKind::kDeltas:
            return unfold_deltas(tree, level, room, out);
        case NodeKind::kList:
            break;
    }
    if (node.list.size() > std::min(kExpandedMax, room)) return false;
    for (const Access& one : node.list) {
        NodeTree& access = out->emplace_back();
        access.node.offset = node.offset;
        access.node.size = node.size;
        if (!add_base(&access.node, one.offset, one.size)) return false;
    }
    return true;
}

// Moves what is added to a list's first access into its base.
bool settle_list(NodeTree* tree) {
    Node& node = tree->node;
    if (node.kind != NodeKind::kList || node.list[0] == Access{}) return false;
    const Access first = node.list[0];
    Node moved = node;
    if (!add_base(&moved, first.offset, first.size)) return false;
    for (Access& one : moved.list) {
        if (__builtin_sub_overflow(one.offset, first.offset, &one.offset) ||
            __builtin_sub_overflow(one.size, first.size, &one.size)) {
            return false;
        }
    }
    node = std::move(moved);
    return true;
}

// If the deltas of a unit repeat within it, makes it a unit of fewer deltas.
bool shorten_unit(NodeTree* tree) {
    Node& node = tree->node;
    const int64_t trips = constant_trips(node);
    if (node.kind != NodeKind::kDeltas || trips < 1) return false;
    const size_t count = node.deltas.size();
    for (size_t period = 1; period < count; ++period) {
        if (count % period != 0) continue;
        bool same = true;
        for (size_t i = period; i < count; ++i) same &= node.deltas[i] == node.deltas[i - period];
        if (!same) continue;
        const int64_t times = static_cast<int64_t>(count / period);
        if (trips > static_cast<int64_t>(kTripsMax) / times) return false;
        node.deltas.resize(period);
        node.trips.base = trips * times;
        return true;
    }
    return false;
}

class Folder {
public:
    explicit Folder(size_t nodes) : nodes_(nodes) {}

    // Repeats until nothing changes: each step makes nodes fewer or simpler.
    void fold(std::vector<NodeTree>* body, size_t level) {
        bool changed = true;
        while (changed) {
            for (NodeTree& tree : *body) fold(&tree.body, level + 1);
            changed = unfold_any(body, level) || absorb_any(body, level) || fold_any(body, level) ||
                      flatten_any(body, level);
        }
    }

private:
    bool unfold_any(std::vector<NodeTree>* body, size_t level) {
        for (size_t i = 0; i < body->size(); ++i) {
            if (settle_list(&(*body)[i]) || shorten_unit(&(*body)[i])) return true;
            std::vector<NodeTree> plain;
            const NodeTree& tree = (*body)[i];
            if (!unfold(tree, level, kNodesMax - std::min(nodes_, kNodesMax) + 1, &plain)) continue;
            nodes_ -= node_count(tree);
            for (const NodeTree& one : plain) nodes_ += node_count(one);
            const auto place = body->erase(body->begin() + static_cast<ptrdiff_t>(i));
            body->insert(place, plain.begin(), plain.end());
            return true;
        }
        return false;
    }

    // Absorbs turns before or behind a loop, or a loop that continues at its end.
    bool absorb_any(std::vector<NodeTree>* body, size_t level) {
        for (size_t i = 0; i < body->size(); ++i) {
            NodeTree& loop = (*body)[i];
            const int64_t trips = constant_trips(loop.node);
            if (loop.node.kind != NodeKind::kLoop || trips < 1) continue;
            if (trips >= static_cast<int64_t>(kTripsMax)) continue;
            const size_t size = loop.body.size();
            if (is_turn(loop, level, trips, *body, i + 1)) {
                ++loop.node.trips.base;
                erase(body, i + 1, size);
                return true;
            }
            if (i >= size && is_turn(loop, level, -1, *body, i - size) &&
                move_start(&loop, level, -1)) {
                ++loop.node.trips.base;
                erase(body, i - size, size);
                return true;
            }
            if (i + 1 < body->size() && continues(loop, level, trips, (*body)[i + 1])) {
                loop.node.trips.base += (*body)[i + 1].node.trips.base;
                erase(body, i + 1, 1);
                return true;
            }
        }
        return false;
    }

    // Returns whether the trees from `at` on are the loop's body at `index`.
    static bool is_turn(const NodeTree& loop, size_t level, int64_t index,
                        const std::vector<NodeTree>& body, size_t at) {
        if (at + loop.body.size() > body.size()) return false;
        for (size_t i = 0; i < loop.body.size(); ++i) {
            NodeTree turn = loop.body[i];
            if (!fix_index(&turn, level, index) || !(turn == body[at + i])) return false;
        }
        return true;
    }

    static bool continues(const NodeTree& loop, size_t level, int64_t trips, const NodeTree& next) {
        const int64_t more = constant_trips(next.node);
        if (next.node.kind != NodeKind::kLoop || more < 1) return false;
        if (trips > static_cast<int64_t>(kTripsMax) - more) return false;
        NodeTree moved = loop;
        return move_start(&moved, level, trips) && moved.body == next.body;
    }

    bool fold_any(std::vector<NodeTree>* body, size_t level) {
        for (size_t size = 1; size <= std::min(kGroupMax, body->size() / 3); ++size) {
            for (size_t at = 0; at + 3 * size <= body->size(); ++at) {
                if (fold_group(body, level, at, size)) return true;
            }
        }
        return false;
    }

    // Makes a loop of three or more groups of `size` trees from `at` on that lie on a line.
    bool fold_group(std::vector<NodeTree>* body, size_t level, size_t at, size_t size) {
        std::vector<int64_t> step, next;
        size_t count = 1;
        for (; at + (count + 1) * size <= body->size(); ++count) {
            next.clear();
            for (size_t i = at + (count - 1) * size; i < at + count * size; ++i) {
                if (!differences((*body)[i], (*body)[i + size], &next)) next.assign(1, INT64_MIN);
                if (next.back() == INT64_MIN) break;
            }
            if (next.back() == INT64_MIN || (count > 1 && next != step)) break;
            step = next;
        }
        if (count < 3) return false;
        NodeTree loop;
        loop.node.kind = NodeKind::kLoop;
        loop.node.trips.base = static_cast<int64_t>(count);
        const auto first = body->begin() + static_cast<ptrdiff_t>(at);
        loop.body.assign(first, first + static_cast<ptrdiff_t>(size));
        const int64_t* coefficient = step.data();
        for (NodeTree& tree : loop.body) {
            if (!insert_loop(&tree, level, &coefficient)) return false;
        }
        erase(body, at, count * size);
        body->insert(body->begin() + static_cast<ptrdiff_t>(at), std::move(loop));
        ++nodes_;
        return true;
    }

    // Flattens a loop that holds only a loop, if its turns continue where the last one ended.
    bool flatten_any(std::vector<NodeTree>* body, size_t level) {
        for (NodeTree& outer : *body) {
            const int64_t turns = constant_trips(outer.node);
            if (outer.node.kind != NodeKind::kLoop || turns < 2 || outer.body.size() != 1) continue;
            NodeTree inner = outer.body[0];
            const int64_t trips = constant_trips(inner.node);
            if (inner.node.kind != NodeKind::kLoop || trips < 2) continue;
            if (turns > static_cast<int64_t>(kTripsMax) / trips) continue;
            if (!std::all_of(inner.body.begin(), inner.body.end(),
                             [&](const NodeTree& tree) { return goes_on(tree, level, trips); })) {
                continue;
            }
            for (NodeTree& tree : inner.body) remove_loop(&tree, level);
            inner.node.trips.base = turns * trips;
            outer = std::move(inner);
            --nodes_;
            return true;
        }
        return false;
    }

    void erase(std::vector<NodeTree>* body, size_t at, size_t count) {
        const auto first = body->begin() + static_cast<ptrdiff_t>(at);
        const auto end = first + static_cast<ptrdiff_t>(count);
        for (auto one = first; one != end; ++one) nodes_ -= node_count(*one);
        body->erase(first, end);
    }

    size_t nodes_;  // of the whole program
};

}  // namespace

Program canonical(const Program& program) {
    Program folded;
    folded.key = program.key;
    folded.grid = program.grid;
    std::vector<NodeTree> trees = trees_of(program.nodes);
    Folder(program.nodes.size()).fold(&trees, 0);
    folded.nodes = nodes_of(trees);
    const bool with_ranks = std::any_of(
        folded.nodes.begin(), folded.nodes.end(), [](const Node& one) {
            constexpr auto kNone = Affine{}.per_rank;
            return one.offset.per_rank != kNone || one.size.per_rank != kNone ||
                   one.trips.per_rank != kNone;
        });
    if (!with_ranks) folded.grid = {1, 1, 1};
    if (validate(folded).ok()) return folded;
    folded.nodes = nodes_of(trees_of(program.nodes));
    folded.grid = program.grid;
    return folded;
}

Result<Program> for_rank(const Program& program, uint64_t rank) {
    Program one = program;
    one.key.first_rank = rank;
    one.key.rank_count = 1;
    one.grid = {1, 1, 1};
    for (Node& node : one.nodes) {
        for (Affine* affine : {&node.offset, &node.size, &node.trips}) {
            Wide base = affine->base;
            uint64_t left = rank;
            for (size_t g = 0; g < kGridMax; ++g) {
                base += Wide{affine->per_rank[g]} * Wide{left % program.grid[g]};
                left /= program.grid[g];
            }
            affine->per_rank = {};
            affine->base = static_cast<int64_t>(base);
            if (Wide{affine->base} != base) {
                return Status{EOVERFLOW, "access program", "a base at this rank is beyond 64 bits"};
            }
        }
    }
    return one;
}

}  // namespace penstock::access
