// For tests: programs in few words, random ones, and their accesses by plain expansion, which is
// the reference that cursor, bounds and forms are held against.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "access/linear_form.h"
#include "access/program.h"
#include "base/prng.h"

namespace penstock::access {

// Nodes and programs in few words.
inline Node access(int64_t offset, int64_t size, std::array<int64_t, kDepthMax> strides = {}) {
    Node node;
    node.offset = {offset, strides, {}};
    node.size.base = size;
    return node;
}

inline Node loop(uint32_t body, int64_t trips, std::array<int64_t, kDepthMax> per_loop = {}) {
    Node node;
    node.kind = NodeKind::kLoop;
    node.body = body;
    node.trips = {trips, per_loop, {}};
    return node;
}

inline Program program_of(std::vector<Node> nodes) {
    Program program;
    program.nodes = std::move(nodes);
    return program;
}

// In an expansion: an access of a random node.
inline constexpr Access kUnknown{-1, -1};

struct Expansion {
    std::vector<Access> accesses;  // up to `accesses_max`
    bool complete = true;          // false: there were more, or too many turns
    bool in_bounds = true;         // every access lies within [0, 2^63)
    bool negative_trips = false;   // some trips were below 0
    bool endless = false;          // ends in a random node without an end
};

// Loop by loop, as the comments of program.h say, in 128 bits.
class Expander {
public:
    Expander(const Program& program, uint64_t rank, size_t accesses_max)
        : program_(program), accesses_max_(accesses_max), turns_left_(20 * accesses_max) {
        coordinates_[0] = rank % program.grid[0];
        coordinates_[1] = rank / program.grid[0] % program.grid[1];
        coordinates_[2] = rank / program.grid[0] / program.grid[1] % program.grid[2];
    }

    Expansion expand() {
        body(0, program_.nodes.size(), 0);
        return out_;
    }

private:
    Wide value(const Affine& affine) const {
        Wide sum = affine.base;
        for (size_t d = 0; d < kDepthMax; ++d) sum += Wide{affine.per_loop[d]} * index_[d];
        for (size_t g = 0; g < kGridMax; ++g) sum += Wide{affine.per_rank[g]} * coordinates_[g];
        return sum;
    }

    void add(Wide offset, Wide size) {
        if (out_.accesses.size() == accesses_max_) out_.complete = false;
        if (!out_.complete) return;
        const Wide end_max = (Wide{1} << 63) - 1;
        if (offset < 0 || size < 0 || offset + size > end_max) out_.in_bounds = false;
        out_.accesses.push_back({static_cast<int64_t>(offset), static_cast<int64_t>(size)});
    }

    void body(size_t begin, size_t end, size_t level) {
        for (size_t n = begin; n < end && out_.complete; n += 1 + program_.nodes[n].body) {
            node(n, level);
        }
    }

    void node(size_t n, size_t level) {
        const Node& one = program_.nodes[n];
        Wide offset = value(one.offset), size = value(one.size);
        const Wide trips = value(one.trips);
        out_.negative_trips |= trips < 0;
        if (one.kind == NodeKind::kRandom && one.trips == Affine{}) out_.endless = true;
        if (one.kind == NodeKind::kAccess || one.kind == NodeKind::kDeltas) add(offset, size);
        for (const Access& item : one.list) add(offset + item.offset, size + item.size);
        for (Wide turn = 0; turn < trips && out_.complete; ++turn) {
            if (turns_left_-- == 0) out_.complete = false;
            if (one.kind == NodeKind::kRandom) {
                if (out_.accesses.size() == accesses_max_) out_.complete = false;
                if (out_.complete) out_.accesses.push_back(kUnknown);
            }
            for (const Delta& delta : one.deltas) add(offset += delta.offset, size += delta.size);
            if (one.kind != NodeKind::kLoop) continue;
            index_[level] = turn;
            body(n + 1, n + 1 + one.body, level + 1);
        }
        if (one.kind == NodeKind::kLoop) index_[level] = 0;
    }

    const Program& program_;
    size_t accesses_max_;
    size_t turns_left_;
    std::array<Wide, kGridMax> coordinates_{};
    std::array<Wide, kDepthMax> index_{};
    Expansion out_;
};

inline Expansion expand(const Program& program, uint64_t rank, size_t accesses_max) {
    return Expander(program, rank, accesses_max).expand();
}

struct RandomProgramOptions {
    bool triangular = true;  // trips that depend on outer indices
    bool negative = true;    // and may turn negative
    bool random_nodes = true;
    bool ranks = true;
};

// A program of well-formed nodes; its offsets are likely in bounds, but need not be.
class ProgramMaker {
public:
    ProgramMaker(uint64_t seed, RandomProgramOptions options) : prng_(seed), options_(options) {}

    Program make() {
        Program program;
        program.key.file = names_[prng_.below(std::size(names_))];
        program.key.operation = static_cast<Operation>(prng_.below(3));
        program.key.context = prng_.next() >> prng_.below(64);
        if (options_.ranks && prng_.below(2) == 0) {
            for (uint64_t& places : program.grid) places = 1 + prng_.below(3);
            program.key.rank_count = program.grid[0] * program.grid[1] * program.grid[2];
        }
        program.provenance.origin = static_cast<Origin>(prng_.below(3));
        program.provenance.support = prng_.next() >> prng_.below(64);
        program.provenance.confidence = prng_.fraction();
        with_ranks_ = program.key.rank_count > 1;
        body(&program.nodes, 0, 1 + prng_.below(3));
        if (options_.random_nodes && prng_.below(8) == 0) {
            program.nodes.emplace_back().kind = NodeKind::kRandom;
        }
        return program;
    }

private:
    int64_t between(int64_t low, int64_t high) {
        return low + static_cast<int64_t>(prng_.below(static_cast<uint64_t>(high - low + 1)));
    }

    void body(std::vector<Node>* nodes, size_t level, size_t count) {
        for (size_t i = 0; i < count && (i == 0 || nodes->size() < 40); ++i) node(nodes, level);
    }

    void node(std::vector<Node>* nodes, size_t level) {
        const uint64_t kind = prng_.below(10);
        const size_t at = nodes->size();
        nodes->emplace_back();
        Node made;
        if (kind < 6 && level < kDepthMax) {
            made.kind = NodeKind::kLoop;
            made.trips = trips(level, 12);
            body(nodes, level + 1, 1 + prng_.below(level == 0 ? 3 : 2));
            made.body = static_cast<uint32_t>(nodes->size() - at - 1);
        } else if (kind == 6) {
            made.kind = NodeKind::kDeltas;
            made.trips = trips(level, 5);
            made.deltas.resize(1 + prng_.below(4));
            for (Delta& delta : made.deltas) delta = {between(-400, 900), between(-1, 3)};
        } else if (kind == 7) {
            made.kind = NodeKind::kList;
            made.list.resize(1 + prng_.below(5));
            for (Access& one : made.list) one = {between(-500, 5000), between(0, 60)};
        } else if (kind == 8 && options_.random_nodes) {
            made.kind = NodeKind::kRandom;
            made.trips = trips(level, 4);
            if (made.trips == Affine{}) made.trips.base = 1;
        }
        if (made.kind != NodeKind::kLoop && made.kind != NodeKind::kRandom) place(&made, level);
        if (prng_.below(3) == 0) {
            made.think = {prng_.fraction() * 1e6, prng_.fraction() * 1e3, prng_.below(1000)};
        }
        (*nodes)[at] = made;
    }

    void place(Node* made, size_t level) {
        made->offset.base = between(2000, 60000);
        made->size.base = between(10, 120);
        for (size_t d = 0; d < level; ++d) {
            if (prng_.below(4) > 0) made->offset.per_loop[d] = between(-300, 4000);
            if (prng_.below(4) == 0) made->size.per_loop[d] = between(-1, 8);
        }
        for (size_t g = 0; g < kGridMax && with_ranks_; ++g) {
            if (prng_.below(2) == 0) made->offset.per_rank[g] = between(-200, 5000);
            if (prng_.below(4) == 0) made->size.per_rank[g] = between(-1, 8);
        }
    }

    Affine trips(size_t level, int64_t most) {
        Affine made;
        made.base = between(prng_.below(8) == 0 ? 0 : 1, most);
        if (!options_.triangular) return made;
        const int64_t lowest = options_.negative ? -2 : 0;
        for (size_t d = 0; d < level; ++d) {
            if (prng_.below(4) == 0) made.per_loop[d] = between(lowest, 2);
        }
        if (with_ranks_ && prng_.below(6) == 0)
            made.per_rank[prng_.below(kGridMax)] = between(-1, 2);
        return made;
    }

    static constexpr const char* names_[] = {"",
                                             "data.bin",
                                             "/a b/\"quoted\"\\",
                                             "gr\xc3\xbc\xc3\x9f",
                                             "\xff\xfe not UTF-8 \xed\xb2\x80",
                                             "tab\tnewline\n"};
    base::Prng prng_;
    RandomProgramOptions options_;
    bool with_ranks_ = false;
};

inline Program random_program(uint64_t seed, RandomProgramOptions options = {}) {
    return ProgramMaker(seed, options).make();
}

}  // namespace penstock::access
