// Steps, counts and seeks. contains() is in contains.cc.
#include "access/cursor.h"

#include <algorithm>
#include <limits>

namespace penstock::access {
namespace {

// Turns without an access that next() walks over before it seeks instead.
constexpr size_t kEmptyTurnsMax = 8;

constexpr uint64_t kEndless = std::numeric_limits<uint64_t>::max();

uint64_t bits(int64_t value) { return static_cast<uint64_t>(value); }

Access sum(const Access& a, const Delta& b) {
    return {static_cast<int64_t>(bits(a.offset) + bits(b.offset)),
            static_cast<int64_t>(bits(a.size) + bits(b.size))};
}

bool has_trips(NodeKind kind) {
    return kind == NodeKind::kLoop || kind == NodeKind::kDeltas || kind == NodeKind::kRandom;
}

}  // namespace

Cursor::Cursor(const Program& program, uint64_t rank) : program_(&program) {
    for (size_t g = 0; g < kGridMax; ++g) {
        coordinates_[g] = rank % program.grid[g];
        rank /= program.grid[g];
    }
    shapes_.resize(program.nodes.size());
    add_shapes(0, shapes_.size(), 0);
    settle();
}

void Cursor::add_shapes(size_t begin, size_t end, size_t level) {
    for (size_t n = begin; n < end; n = end_of(n)) {
        const Node& node = program_->nodes[n];
        Shape& shape = shapes_[n];
        shape.level = level;
        shape.offset = node.offset.base;
        shape.size = node.size.base;
        shape.trips = node.trips.base;
        for (size_t g = 0; g < kGridMax; ++g) {
            const Wide coordinate = coordinates_[g];
            shape.offset += node.offset.per_rank[g] * coordinate;
            shape.size += node.size.per_rank[g] * coordinate;
            shape.trips += node.trips.per_rank[g] * coordinate;
        }
        if (!has_trips(node.kind)) continue;
        for (size_t d = 0; d < kDepthMax; ++d) {
            if (node.trips.per_loop[d] != 0) shape.trips_mask |= 1u << d;
        }
        shape.endless = node.kind == NodeKind::kRandom && node.trips == Affine{};
        shape.count_mask = shape.trips_mask;
        if (node.kind == NodeKind::kLoop) {
            add_shapes(n + 1, end_of(n), level + 1);
            shape.even = true;
            for (size_t inner = n + 1; inner < end_of(n); inner = end_of(inner)) {
                shape.count_mask |= shapes_[inner].count_mask;
                shape.degree = std::max(shape.degree, shapes_[inner].degree);
                shape.even &= shapes_[inner].count_mask == 0;
            }
            if (shape.even) shape.turn_count = count_of_body(n, {});
        }
        shape.count_mask &= (1u << level) - 1;
        ++shape.degree;
        if (shape.count_mask != 0) continue;
        shape.count = count_of(n, {});
        shape.counted = true;
    }
}

size_t Cursor::end_of(size_t node) const {
    const Node& one = program_->nodes[node];
    return node + 1 + (one.kind == NodeKind::kLoop ? one.body : 0);
}

// Returns whether the count of a loop's body depends on its index.
bool Cursor::varies(size_t loop) const {
    for (size_t n = loop + 1; n < end_of(loop); n = end_of(n)) {
        if (shapes_[n].count_mask >> shapes_[loop].level & 1) return true;
    }
    return false;
}

uint64_t Cursor::trips_of(size_t node, const Indices& at) const {
    const Shape& shape = shapes_[node];
    Wide trips = shape.trips;
    for (size_t d = 0; shape.trips_mask >> d != 0; ++d) {
        trips += Wide{program_->nodes[node].trips.per_loop[d]} * Wide{at[d]};
    }
    return trips > 0 ? static_cast<uint64_t>(trips) : 0;
}

Access Cursor::access_of(size_t node, const Indices& at) const {
    const Shape& shape = shapes_[node];
    const Node& one = program_->nodes[node];
    uint64_t offset = static_cast<uint64_t>(shape.offset);
    uint64_t size = static_cast<uint64_t>(shape.size);
    for (size_t d = 0; d < shape.level; ++d) {
        offset += bits(one.offset.per_loop[d]) * at[d];
        size += bits(one.size.per_loop[d]) * at[d];
    }
    return {static_cast<int64_t>(offset), static_cast<int64_t>(size)};
}

// --- counting -----------------------------------------------------------------------------------

uint64_t Cursor::Counts::of_turns(uint64_t turns) const {
    Wide total = 0, choose = 1;
    for (size_t k = 0; k < terms && k < turns; ++k) {
        choose = choose * Wide{turns - k} / Wide{k + 1};  // binomial: turns over k + 1
        total += differences[k] * choose;
    }
    return static_cast<uint64_t>(total);
}

Cursor::Counts Cursor::fit(size_t loop, uint64_t first, uint64_t turns, Indices at) const {
    const Shape& shape = shapes_[loop];
    Counts counts{.first = first, .terms = 0, .differences = {}};
    const size_t samples = std::min<uint64_t>(turns, varies(loop) ? shape.degree : 1);
    std::array<Wide, kDepthMax + 2> values{};
    for (size_t k = 0; k < samples; ++k) {
        at[shape.level] = first + k;
        values[k] = count_of_body(loop, at);
    }
    for (size_t k = 0; k < samples; ++k) {
        counts.differences[k] = values[0];
        if (values[0] != 0) counts.terms = k + 1;  // terms of 0 would only overflow `choose`
        for (size_t i = 0; i + 1 < samples - k; ++i) values[i] = values[i + 1] - values[i];
    }
    return counts;
}

template <class Visit>
void Cursor::for_each_piece(size_t loop, uint64_t trips, const Indices& at, Visit visit) const {
    const Shape& shape = shapes_[loop];
    if (shape.even) {
        Counts counts;
        counts.terms = shape.turn_count != 0 ? 1 : 0;
        counts.differences[0] = shape.turn_count;
        visit(counts, trips);
        return;
    }
    std::array<uint64_t, kNodesMax + 1> ends{};
    size_t count = 0;
    const size_t level = shape.level;
    for (size_t n = loop + 1; n < end_of(loop); ++n) {
        const Shape& inner = shapes_[n];
        if (inner.trips_mask != 1u << level) continue;
        // The first turn whose trips have the other sign.
        const Wide slope = program_->nodes[n].trips.per_loop[level];
        const Wide turn = slope > 0 ? ceil_divide(-inner.trips, slope)
                                    : floor_divide(inner.trips, -slope) + 1;
        if (turn > 0 && turn < Wide{trips}) ends[count++] = static_cast<uint64_t>(turn);
    }
    ends[count++] = trips;
    std::sort(ends.begin(), ends.begin() + count);
    uint64_t first = 0;
    for (size_t i = 0; i < count; ++i) {
        if (ends[i] == first) continue;
        if (visit(fit(loop, first, ends[i] - first, at), ends[i] - first)) return;
        first = ends[i];
    }
}

uint64_t Cursor::count_of_body(size_t loop, const Indices& at) const {
    uint64_t count = 0;
    for (size_t n = loop + 1; n < end_of(loop); n = end_of(n)) count += count_of(n, at);
    return count;
}

uint64_t Cursor::count_of(size_t node, Indices at) const {
    const Node& one = program_->nodes[node];
    switch (one.kind) {
        case NodeKind::kAccess:
            return 1;
        case NodeKind::kList:
            return one.list.size();
        case NodeKind::kDeltas:
            return 1 + trips_of(node, at) * one.deltas.size();
        case NodeKind::kRandom:
            return shapes_[node].endless ? kEndless : trips_of(node, at);
        case NodeKind::kLoop:
            break;
    }
    const uint64_t trips = trips_of(node, at);
    uint64_t total = 0;
    for_each_piece(node, trips, at, [&total](const Counts& counts, uint64_t turns) {
        total += counts.of_turns(turns);
        return false;
    });
    return total;
}

std::optional<uint64_t> Cursor::count() const {
    if (!shapes_.empty() && shapes_.back().endless) return std::nullopt;
    uint64_t total = 0;
    for (size_t n = 0; n < shapes_.size(); n = end_of(n)) total += count_of(n, {});
    return total;
}

// --- moving -------------------------------------------------------------------------------------

// Moves to the access `within` of a node that is no loop.
void Cursor::arrive(size_t leaf, uint64_t within) {
    const Node& node = program_->nodes[leaf];
    node_ = leaf;
    within_ = within;
    leaf_count_ = count_of(leaf, at_);
    random_ = node.kind == NodeKind::kRandom;
    if (node.kind != NodeKind::kDeltas || within == 0) return;
    // The access before: whole units, and part of one.
    const uint64_t units = (within - 1) / node.deltas.size();
    delta_ = (within - 1) % node.deltas.size();
    last_ = access_of(leaf, at_);
    uint64_t offset = 0, size = 0;
    for (size_t k = 0; k < node.deltas.size(); ++k) {
        const uint64_t times = units + (k < delta_ ? 1 : 0);
        offset += bits(node.deltas[k].offset) * times;
        size += bits(node.deltas[k].size) * times;
    }
    last_ = sum(last_, {static_cast<int64_t>(offset), static_cast<int64_t>(size)});
}

// Moves from node_, which may be a loop or the end of one, to the first access.
void Cursor::settle() {
    size_t empty_turns = 0;
    random_ = false;
    for (;;) {
        if (depth_ > 0 && node_ == end_of(loops_[depth_ - 1].node)) {
            const Loop& loop = loops_[depth_ - 1];
            if (++at_[depth_ - 1] < loop.trips) {
                node_ = loop.node + 1;
                if (++empty_turns <= kEmptyTurnsMax) continue;
                seek(position_);
                return;
            }
            at_[--depth_] = 0;
        } else if (node_ == shapes_.size()) {
            return;
        } else if (program_->nodes[node_].kind == NodeKind::kLoop) {
            const uint64_t trips = trips_of(node_, at_);
            if (trips == 0) {
                node_ = end_of(node_);
                continue;
            }
            at_[depth_] = 0;
            loops_[depth_++] = {node_, trips};
            ++node_;
        } else {
            arrive(node_, 0);
            if (leaf_count_ > 0) return;
            random_ = false;
            ++node_;
        }
    }
}

void Cursor::leave() {
    ++node_;
    settle();
}

std::optional<Access> Cursor::next() {
    if (random_ || node_ == shapes_.size()) return std::nullopt;
    const Node& node = program_->nodes[node_];
    Access access;
    if (node.kind == NodeKind::kDeltas && within_ > 0) {
        access = last_ = sum(last_, node.deltas[delta_]);
        if (++delta_ == node.deltas.size()) delta_ = 0;
    } else {
        access = last_ = access_of(node_, at_);
        delta_ = 0;
        if (node.kind == NodeKind::kList) {
            access = sum(access, {node.list[within_].offset, node.list[within_].size});
        }
    }
    ++position_;
    if (++within_ == leaf_count_) leave();
    return access;
}

size_t Cursor::next(std::span<Access> out) {
    size_t count = 0;
    for (std::optional<Access> access; count < out.size() && (access = next()); ++count) {
        out[count] = *access;
    }
    return count;
}

// Sets the loop's index to the turn that holds its access `left`. Returns the access's number in
// that turn.
uint64_t Cursor::take_turns(size_t loop, uint64_t trips, uint64_t left) {
    const size_t level = shapes_[loop].level;
    for_each_piece(loop, trips, at_, [&](const Counts& counts, uint64_t turns) {
        const uint64_t here = counts.of_turns(turns);
        if (left >= here) {
            left -= here;
            return false;
        }
        // The first turn that ends after `left`.
        uint64_t low = 0, high = turns - 1;
        if (counts.terms == 1) {
            low = high = left / static_cast<uint64_t>(counts.differences[0]);
        }
        while (low < high) {
            const uint64_t middle = low + (high - low) / 2;
            if (counts.of_turns(middle + 1) > left) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        left -= counts.of_turns(low);
        at_[level] = counts.first + low;
        return true;
    });
    return left;
}

// Moves to the access `left` of the nodes from `begin` to `end`, which lie in one body.
bool Cursor::descend(size_t begin, size_t end, uint64_t left) {
    for (size_t n = begin; n < end; n = end_of(n)) {
        const uint64_t count = count_of(n, at_);
        if (left >= count) {
            left -= count;
            continue;
        }
        if (program_->nodes[n].kind != NodeKind::kLoop) {
            arrive(n, left);
            return true;
        }
        const uint64_t trips = trips_of(n, at_);
        loops_[depth_++] = {n, trips};
        left = take_turns(n, trips, left);
        return descend(n + 1, end_of(n), left);
    }
    return false;
}

bool Cursor::seek(uint64_t position) {
    depth_ = 0;
    at_ = {};
    random_ = false;
    position_ = position;
    if (descend(0, shapes_.size(), position)) return true;
    position_ = count().value_or(position);
    node_ = shapes_.size();
    return false;
}

}  // namespace penstock::access
