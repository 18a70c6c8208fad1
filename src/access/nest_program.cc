#include "access/nest_program.h"

#include <algorithm>

namespace penstock::access {
namespace {

constexpr size_t kListMin = 4;  // accesses in a row that become a list and not nodes

Affine affine(const Value& value) { return {value.base, value.step, {}}; }

Value value_of(const Affine& affine, const std::array<int64_t, kGridMax>& place) {
    Value value{affine.base, affine.per_loop};
    for (size_t g = 0; g < kGridMax; ++g)
        value.base = add(value.base, multiply(affine.per_rank[g], place[g]));
    return value;
}

bool is_plain(const Term& term) { return term.kind == NodeKind::kAccess; }

bool same_steps(const Term& a, const Term& b) {
    return a.offset.step == b.offset.step && a.size.step == b.size.step;
}

// Writes terms of one depth as nodes.
class Writer {
public:
    explicit Writer(std::vector<Node>* out) : out_(out) {}

    void write(std::span<const Term> terms, size_t depth) {
        for (size_t at = 0; at < terms.size();) {
            if (terms[at].is_loop()) {
                if (is_unit(terms.subspan(at), depth)) {
                    write_unit(terms.subspan(at), depth);
                    at += terms[at].span + 1;
                } else {
                    write_loop(terms.subspan(at, terms[at].span), depth);
                    at += terms[at].span;
                }
                continue;
            }
            size_t count = 1;
            while (at + count < terms.size() && is_plain(terms[at + count]) &&
                   same_steps(terms[at], terms[at + count])) {
                ++count;
            }
            write_accesses(terms.subspan(at, count));
            at += count;
        }
    }

private:
    void write_loop(std::span<const Term> term, size_t depth) {
        const size_t at = out_->size();
        Node loop;
        loop.kind = NodeKind::kLoop;
        loop.trips = affine(term[0].trips);
        out_->push_back(loop);
        write(term.subspan(1), depth + 1);
        (*out_)[at].body = static_cast<uint32_t>(out_->size() - at - 1);
    }

    // A loop of several accesses that all grow alike, and behind it the access that would follow.
    static bool is_unit(std::span<const Term> terms, size_t depth) {
        const Term& loop = terms[0];
        if (loop.children < 2 || loop.children > kPeriodMax || loop.span != loop.children + 1u ||
            terms.size() <= loop.span || !is_plain(terms[loop.span])) {
            return false;
        }
        for (size_t i = 2; i < loop.span; ++i) {
            if (!same_steps(terms[1], terms[i])) return false;
        }
        const auto follows = [&](const Value& first, const Value& last) {
            const int64_t step = first.step[depth];
            bool all = last.base == add(first.base, multiply(step, loop.trips.base));
            for (size_t d = 0; d < depth; ++d) {
                all = all && last.step[d] == add(first.step[d], multiply(step, loop.trips.step[d]));
            }
            return all;
        };
        const Term& last = terms[loop.span];
        return follows(terms[1].offset, last.offset) && follows(terms[1].size, last.size);
    }

    void write_unit(std::span<const Term> terms, size_t depth) {
        const Term& loop = terms[0];
        Node unit;
        unit.kind = NodeKind::kDeltas;
        unit.offset = affine(terms[1].offset);
        unit.size = affine(terms[1].size);
        unit.trips = affine(loop.trips);
        Delta whole{terms[1].offset.step[depth], terms[1].size.step[depth]};
        unit.offset.per_loop[depth] = unit.size.per_loop[depth] = 0;
        for (size_t i = 2; i < loop.span; ++i) {
            const Delta delta{subtract(terms[i].offset.base, terms[i - 1].offset.base),
                              subtract(terms[i].size.base, terms[i - 1].size.base)};
            unit.deltas.push_back(delta);
            whole = {subtract(whole.offset, delta.offset), subtract(whole.size, delta.size)};
        }
        unit.deltas.push_back(whole);
        out_->push_back(std::move(unit));
    }

    void write_accesses(std::span<const Term> accesses) {
        if (accesses.size() < kListMin) {
            for (const Term& access : accesses) {
                Node node;
                node.offset = affine(access.offset);
                node.size = affine(access.size);
                out_->push_back(node);
            }
            return;
        }
        std::vector<Access> list;
        for (const Term& access : accesses) list.push_back({access.offset.base, access.size.base});
        Node node = node_of(list);
        if (node.kind == NodeKind::kList) {
            node.offset.per_loop = accesses[0].offset.step;
            node.size.per_loop = accesses[0].size.step;
        }
        out_->push_back(std::move(node));
    }

    std::vector<Node>* out_;
};

bool may_be_program(std::span<const Node> nodes) {
    size_t listed = 0;
    for (const Node& node : nodes) listed += node.list.size();
    return nodes.size() <= kNodesMax && listed <= kListMax;
}

// Writes out the loops that have at most `weight_max` accesses.
std::vector<Term> without_small(std::span<const Term> terms, uint64_t weight_max) {
    std::vector<Term> out;
    for (size_t at = 0; at < terms.size(); at += terms[at].span) {
        const auto term = terms.subspan(at, terms[at].span);
        if (!term[0].is_loop() || weight(term.data()) > weight_max) {
            out.insert(out.end(), term.begin(), term.end());
            continue;
        }
        Walker walker;
        for (walker.start(term.data(), term[0].span); !walker.ended(); walker.advance())
            out.push_back(plain(walker.current()));
    }
    return out;
}

}  // namespace

std::vector<Term> terms_of(const Program& program, uint64_t rank) {
    std::array<int64_t, kGridMax> place{};
    uint64_t rest = rank;
    for (size_t g = 0; g < kGridMax; ++g) {
        const uint64_t width = std::max<uint64_t>(1, program.grid[g]);
        place[g] = static_cast<int64_t>(rest % width);
        rest /= width;
    }
    std::vector<Term> terms;
    for (const Node& node : program.nodes) {
        Term term;
        term.kind = node.kind;
        term.span = 1 + (node.kind == NodeKind::kLoop ? node.body : 0);
        term.source = static_cast<uint32_t>(terms.size());
        term.offset = value_of(node.offset, place);
        term.size = value_of(node.size, place);
        term.trips = value_of(node.trips, place);
        terms.push_back(term);
    }
    // From the last to the first, so that inner terms are known before outer ones.
    for (size_t i = terms.size(); i-- > 0;) {
        if (!terms[i].is_loop()) continue;
        uint32_t children = 0;
        for (size_t at = i + 1; at < i + terms[i].span; at += terms[at].span, ++children)
            terms[i].depth = std::max(terms[i].depth, static_cast<uint8_t>(terms[at].depth + 1));
        terms[i].children = static_cast<uint16_t>(children);
        // A body with other leaves than accesses cannot be skipped in whole turns.
        for (size_t at = i + 1; at < i + terms[i].span; ++at) {
            if (!terms[at].is_loop() && !is_plain(terms[at])) ++terms[i].depth;
        }
    }
    return terms;
}

Node node_of(std::span<const Access> accesses) {
    Node node;
    if (accesses.size() > kListMax) {
        node.kind = NodeKind::kRandom;
        node.trips.base = static_cast<int64_t>(accesses.size());
    } else {
        node.kind = NodeKind::kList;
        node.list.assign(accesses.begin(), accesses.end());
    }
    return node;
}

bool nodes_of(std::span<const Term> terms, std::vector<Node>* out) {
    out->clear();
    Writer(out).write(terms, 0);
    if (may_be_program(*out)) return true;
    constexpr uint64_t kWeightMax = uint64_t{1} << 20;  // weight() counts no further
    for (uint64_t weight_max = 8; weight_max < kWeightMax; weight_max *= 4) {
        const std::vector<Term> rest = without_small(terms, weight_max);
        out->clear();
        Writer(out).write(rest, 0);
        if (may_be_program(*out)) return true;
    }
    Node random;
    random.kind = NodeKind::kRandom;
    out->assign(1, random);
    return false;
}

}  // namespace penstock::access
