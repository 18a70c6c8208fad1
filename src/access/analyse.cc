// The offline detector: runs the recogniser of nest.h over a whole trace, with large limits.
//
// Greedy recognition can take accesses for a loop that look like one only by chance. So it runs
// several times, and each attempt demands more single accesses per loop; the shortest program wins.
// Two attempts look for accesses that repeat: deltas with a short period, and one long order.
// Each program is walked through and compared with the trace before it is returned.
#include <algorithm>

#include "access/detector.h"
#include "access/detector_timing.h"
#include "access/nest.h"
#include "access/nest_program.h"

namespace penstock::access {
namespace {

// Accesses in a line that make a loop on their own, in each attempt.
constexpr size_t kSingleMins[] = {3, 4, 6, 12};
// The costly attempts are only for traces that one attempt reads in a few milliseconds.
constexpr size_t kAttemptsUpTo = 1 << 16;

std::vector<Node> recognise(std::span<const Access> accesses, size_t single_min) {
    NestLimits limits;
    limits.entries = 1024;
    limits.nodes = 2048;
    limits.body_max = limits.mixed_max = 48;
    limits.guess_max = 8;
    limits.begun_max = 6;
    limits.tries = 16;
    limits.single_min = single_min;
    std::vector<Term> terms;
    NestRecogniser recogniser(limits, &terms);
    for (const Access& access : accesses) {
        if (recogniser.follows(access)) {
            recogniser.advance();
        } else {
            recogniser.learn({&access, 1});
        }
    }
    recogniser.finish();
    terms.insert(terms.end(), recogniser.terms().begin(), recogniser.terms().end());
    std::vector<Node> nodes;
    nodes_of(terms, &nodes);
    return nodes;
}

// Describes the whole trace as one delta unit. The border of its deltas, by Knuth, Morris and
// Pratt, ends one period before the last.
bool as_unit(std::span<const Access> accesses, Node* out) {
    if (accesses.size() < 5) return false;
    std::vector<Delta> deltas(accesses.size() - 1);
    for (size_t i = 0; i < deltas.size(); ++i) {
        deltas[i] = {subtract(accesses[i + 1].offset, accesses[i].offset),
                     subtract(accesses[i + 1].size, accesses[i].size)};
    }
    std::vector<size_t> border(deltas.size() + 1, 0);
    for (size_t i = 1, k = 0; i < deltas.size(); ++i) {
        while (k > 0 && deltas[i] != deltas[k]) k = border[k];
        if (deltas[i] == deltas[k]) ++k;
        border[i + 1] = k;
    }
    const size_t period = deltas.size() - border[deltas.size()];
    // A period of one is a stride, which is a loop.
    if (period < 2 || period > kPeriodMax || deltas.size() % period != 0) return false;
    const size_t trips = deltas.size() / period;
    if (trips < 2) return false;
    *out = Node{};
    out->kind = NodeKind::kDeltas;
    out->offset.base = accesses[0].offset;
    out->size.base = accesses[0].size;
    out->trips.base = static_cast<int64_t>(trips);
    out->deltas.assign(deltas.begin(), deltas.begin() + static_cast<ptrdiff_t>(period));
    return true;
}

// Returns for each i the length of the longest proper border of the last i accesses, read
// backwards, by Knuth, Morris and Pratt.
std::vector<size_t> borders_from_the_end(std::span<const Access> accesses) {
    const auto backwards = [&](size_t i) { return accesses[accesses.size() - 1 - i]; };
    std::vector<size_t> border(accesses.size() + 1, 0);
    for (size_t i = 1, k = 0; i < accesses.size(); ++i) {
        while (k > 0 && backwards(i) != backwards(k)) k = border[k];
        if (backwards(i) == backwards(k)) ++k;
        border[i + 1] = k;
    }
    return border;
}

// Describes accesses that repeat one order, however long it is: what comes before as a list, then a
// loop around a list. Returns nothing if no order is repeated.
std::vector<Node> as_epochs(std::span<const Access> accesses) {
    const std::vector<size_t> border = borders_from_the_end(accesses);
    size_t best_saved = 0, best_period = 0, best_trips = 0;
    for (size_t length = 2; length <= accesses.size(); ++length) {
        const size_t period = length - border[length];
        const size_t trips = length / period;
        if (trips < 2 || (trips - 1) * period <= best_saved) continue;
        best_saved = (trips - 1) * period;
        best_period = period;
        best_trips = trips;
    }
    const size_t before = accesses.size() - best_trips * best_period;
    // A row of equal accesses, or a few in turn, is a nest.
    if (best_period <= kPeriodMax || before + best_period > kListMax) return {};
    std::vector<Node> nodes;
    if (before > 0) nodes.push_back(node_of(accesses.first(before)));
    Node loop;
    loop.kind = NodeKind::kLoop;
    loop.body = 1;
    loop.trips.base = static_cast<int64_t>(best_trips);
    nodes.push_back(loop);
    nodes.push_back(node_of(accesses.subspan(before, best_period)));
    return nodes;
}

bool tells(const Program& program, std::span<const Access> accesses) {
    const std::vector<Term> terms = terms_of(program, 0);
    Walker walker;
    walker.start(terms.data(), static_cast<uint32_t>(terms.size()), &program);
    for (const Access& access : accesses) {
        if (walker.ended() || walker.current() != access) return false;
        walker.advance();
    }
    return walker.ended();
}

// Returns the cost of a program: its nodes, and each access that a list must name. A unit of equal
// deltas is a stride, which is a loop in canonical form.
uint64_t cost(const std::vector<Node>& nodes) {
    uint64_t sum = nodes.size();
    for (const Node& node : nodes) {
        sum += node.list.size();
        if (node.kind == NodeKind::kDeltas &&
            std::count(node.deltas.begin(), node.deltas.end(), node.deltas[0]) ==
                static_cast<ptrdiff_t>(node.deltas.size()))
            sum += 2;
        if (node.kind == NodeKind::kRandom) sum += uint64_t{1} << 40;
    }
    return sum;
}

// Gives each node the gaps before it: a leaf the gaps between its accesses, a loop the additional
// time of its turns.
void add_timing(std::span<const uint64_t> times_ns, Program* program) {
    const std::vector<Term> terms = terms_of(*program, 0);
    std::vector<GapMeter> own(terms.size()), turns(terms.size());
    std::vector<size_t> leaf_of(terms.size(), 0);
    Walker walker;
    walker.start(terms.data(), static_cast<uint32_t>(terms.size()), program);
    for (size_t i = 0; i < times_ns.size() && !walker.ended(); ++i) {
        const Walker before = walker;
        walker.advance();
        if (i + 1 == times_ns.size() || walker.ended()) break;
        const double gap = times_ns[i + 1] > times_ns[i]
                               ? static_cast<double>(times_ns[i + 1] - times_ns[i])
                               : 0.0;
        const size_t turned = walker.loops_kept(before);
        if (turned + 1 < walker.depth() && turned < before.depth()) {
            turns[walker.loop(turned)].add_gap(gap);
            leaf_of[walker.loop(turned)] = walker.at();
        } else {
            own[walker.at()].add_gap(gap);
        }
    }
    for (size_t i = 0; i < terms.size(); ++i) {
        Node& node = program->nodes[i];
        node.think = node.kind == NodeKind::kLoop ? turns[i].timing() : own[i].timing();
        if (node.kind != NodeKind::kLoop || node.think.count == 0) continue;
        node.think.mean_ns = std::max(0.0, node.think.mean_ns - own[leaf_of[i]].timing().mean_ns);
    }
}

}  // namespace

Program analyse(std::span<const Access> accesses, std::span<const uint64_t> times_ns) {
    Program program;
    program.provenance.origin = Origin::kOffline;
    program.provenance.support = accesses.size();
    if (accesses.empty()) return program;
    program.nodes = {node_of(accesses)};
    const auto attempt = [&](std::vector<Node> nodes) {
        Program other;
        other.nodes = std::move(nodes);
        if (cost(other.nodes) < cost(program.nodes) && tells(other, accesses))
            program.nodes = std::move(other.nodes);
    };
    for (const size_t single_min : kSingleMins) {
        if (single_min == kSingleMins[0] || accesses.size() <= kAttemptsUpTo)
            attempt(recognise(accesses, single_min));
    }
    Node unit;
    if (as_unit(accesses, &unit)) attempt({unit});
    if (std::vector<Node> epochs = as_epochs(accesses); !epochs.empty()) attempt(std::move(epochs));
    program.provenance.confidence = program.nodes[0].kind == NodeKind::kRandom ? 0.0 : 1.0;
    if (times_ns.size() == accesses.size()) add_timing(times_ns, &program);
    return program;
}

}  // namespace penstock::access
