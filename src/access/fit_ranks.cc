// Makes one program for several ranks. Each value that differs is fitted by a linear form of the
// rank, or of the coordinates of a process grid. The arithmetic is in exact integers.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "access/detector.h"
#include "access/nest_term.h"

namespace penstock::access {
namespace {

// Up to this many ranks all grids are tried; above, only those that the ranks fill.
constexpr uint64_t kEveryGridMax = 256;
// Up to this many ranks grids are tried at all, because their widths are tried one by one.
constexpr uint64_t kGridRanksMax = uint64_t{1} << 20;
constexpr uint64_t kRankMax = uint64_t{1} << 62;

using Place = std::array<int64_t, kGridMax>;
using Grid = std::array<uint64_t, kGridMax>;

Place place_of(uint64_t rank, const Grid& grid) {
    Place place{};
    for (size_t g = 0; g < kGridMax; ++g) {
        place[g] = static_cast<int64_t>(rank % grid[g]);
        rank /= grid[g];
    }
    return place;
}

// The streams' positions in a grid, and for each dimension two streams that differ only in it.
struct Layout {
    std::vector<Place> places;
    std::array<std::optional<std::pair<size_t, size_t>>, kGridMax> neighbours;
};

// Returns nothing if some dimension with extent has no such two streams.
std::optional<Layout> layout_of(std::span<const uint64_t> ranks, const Grid& grid) {
    Layout layout;
    for (const uint64_t rank : ranks) layout.places.push_back(place_of(rank, grid));
    for (size_t g = 0; g < kGridMax; ++g) {
        std::map<Place, size_t> firsts;
        bool extent = false;
        for (size_t i = 0; i < ranks.size() && !layout.neighbours[g]; ++i) {
            Place rest = layout.places[i];
            extent = extent || rest[g] != layout.places[0][g];
            rest[g] = 0;
            const auto [first, added] = firsts.emplace(rest, i);
            if (!added && layout.places[first->second][g] != layout.places[i][g])
                layout.neighbours[g] = {first->second, i};
        }
        if (extent && !layout.neighbours[g]) return std::nullopt;
    }
    return layout;
}

// Fits value(i) = base + sum of per_rank[g] * place(i)[g], exactly.
bool fit(const std::vector<int64_t>& values, const Layout& layout, Affine* out) {
    for (size_t g = 0; g < kGridMax; ++g) {
        out->per_rank[g] = 0;
        if (!layout.neighbours[g]) continue;
        auto [i, j] = *layout.neighbours[g];
        // A distance of -1 would give a quotient beyond 64 bits.
        if (layout.places[j][g] < layout.places[i][g]) std::swap(i, j);
        int64_t rise = 0;
        const int64_t run = layout.places[j][g] - layout.places[i][g];
        if (__builtin_sub_overflow(values[j], values[i], &rise) || rise % run != 0) return false;
        out->per_rank[g] = rise / run;
    }
    const auto sum = [&](size_t i) {
        int64_t total = 0;
        for (size_t g = 0; g < kGridMax; ++g)
            total = add(total, multiply(out->per_rank[g], layout.places[i][g]));
        return total;
    };
    out->base = subtract(values[0], sum(0));
    for (size_t i = 0; i < values.size(); ++i) {
        if (add(out->base, sum(i)) != values[i]) return false;
    }
    return true;
}

constexpr std::array<int64_t, kGridMax> kNoRank{};

// Moves the position of a list from its first access into the node's base, so that lists which are
// only moved are equal.
Node normal(Node node) {
    if (node.kind != NodeKind::kList || node.list.empty()) return node;
    const Access first = node.list[0];
    node.offset.base = add(node.offset.base, first.offset);
    node.size.base = add(node.size.base, first.size);
    for (Access& access : node.list) {
        access.offset = subtract(access.offset, first.offset);
        access.size = subtract(access.size, first.size);
    }
    return node;
}

bool same_shape(const Node& a, const Node& b) {
    const auto alike = [](const Affine& x, const Affine& y) {
        return x.per_loop == y.per_loop && x.per_rank == kNoRank && y.per_rank == kNoRank;
    };
    return a.kind == b.kind && a.body == b.body && alike(a.offset, b.offset) &&
           alike(a.size, b.size) && alike(a.trips, b.trips) && a.deltas == b.deltas &&
           a.list == b.list;
}

Timing mean_of(const std::vector<std::vector<Node>>& streams, size_t node) {
    Timing sum;
    for (const std::vector<Node>& nodes : streams) {
        const Timing& think = nodes[node].think;
        const auto weight = static_cast<double>(think.count);
        sum.mean_ns += think.mean_ns * weight;
        sum.deviation_ns += think.deviation_ns * weight;
        sum.count += think.count;
    }
    if (sum.count == 0) return {};
    sum.mean_ns /= static_cast<double>(sum.count);
    sum.deviation_ns /= static_cast<double>(sum.count);
    return sum;
}

bool fit_grid(const std::vector<std::vector<Node>>& streams, const Layout& layout,
              std::vector<Node>* out) {
    *out = streams[0];
    std::vector<int64_t> values(streams.size());
    for (size_t n = 0; n < out->size(); ++n) {
        for (Affine Node::*field : {&Node::offset, &Node::size, &Node::trips}) {
            for (size_t i = 0; i < streams.size(); ++i) values[i] = (streams[i][n].*field).base;
            if (!fit(values, layout, &((*out)[n].*field))) return false;
        }
        (*out)[n].think = mean_of(streams, n);
    }
    return true;
}

// Returns the grids to try: a line, then planes, then spaces.
std::vector<Grid> grids_for(uint64_t ranks) {
    std::vector<Grid> grids{{ranks, 1, 1}};
    if (ranks > kGridRanksMax) return grids;
    const auto wanted = [&](uint64_t width, uint64_t of) {
        return ranks <= kEveryGridMax || of % width == 0;
    };
    for (uint64_t x = 2; x < ranks; ++x) {
        if (wanted(x, ranks)) grids.push_back({x, (ranks + x - 1) / x, 1});
    }
    for (uint64_t x = 2; x < ranks; ++x) {
        if (!wanted(x, ranks)) continue;
        const uint64_t rest = (ranks + x - 1) / x;
        for (uint64_t y = 2; y < rest; ++y) {
            if (wanted(y, rest)) grids.push_back({x, y, (rest + y - 1) / y});
        }
    }
    return grids;
}

}  // namespace

bool fit_ranks(std::span<const Program> programs, std::span<const uint64_t> ranks, Program* out) {
    if (programs.empty() || programs.size() != ranks.size()) return false;
    std::vector<std::vector<Node>> streams;
    for (const Program& program : programs) {
        streams.emplace_back();
        for (const Node& node : program.nodes) streams.back().push_back(normal(node));
        const std::vector<Node>& nodes = streams.back();
        if (nodes.size() != streams[0].size() ||
            !std::equal(nodes.begin(), nodes.end(), streams[0].begin(), same_shape)) {
            return false;
        }
    }
    const auto [low, high] = std::minmax_element(ranks.begin(), ranks.end());
    if (*high >= kRankMax) return false;
    for (const Grid& grid : grids_for(*high + 1)) {
        const std::optional<Layout> layout = layout_of(ranks, grid);
        std::vector<Node> nodes;
        if (!layout || !fit_grid(streams, *layout, &nodes)) continue;
        Program fitted;
        fitted.key = programs[0].key;
        fitted.key.first_rank = *low;
        fitted.key.rank_count = *high - *low + 1;
        fitted.grid = grid;
        fitted.nodes = std::move(nodes);
        fitted.provenance = programs[0].provenance;
        for (const Program& program : programs.subspan(1)) {
            fitted.provenance.support += program.provenance.support;
            fitted.provenance.confidence = std::min(fitted.provenance.confidence,
                                                    program.provenance.confidence);
        }
        *out = std::move(fitted);
        return true;
    }
    return false;
}

}  // namespace penstock::access
