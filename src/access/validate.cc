// The checks of validate.h, by interval arithmetic over the variables of linear_form.h.
#include "access/validate.h"

#include <algorithm>
#include <cmath>

#include "access/linear_form.h"

namespace penstock::access {
namespace {

constexpr Wide kEndMax = Wide{1} << 63;       // accesses end below this
constexpr Wide kTripsMin = -(Wide{1} << 62);  // trips that count as 0
constexpr Wide kCountMax = Wide{1} << 62;

Status invalid(const char* text) { return {EINVAL, "access program", text}; }

bool is_zero(const Affine& affine) { return affine == Affine{}; }

bool is_sane(const Timing& timing) {
    // -0.0 is refused too, because it would be a second way to write 0.
    const auto sane = [](double value) { return std::isfinite(value) && !std::signbit(value); };
    return sane(timing.mean_ns) && sane(timing.deviation_ns);
}

Status check_key(const Program& program) {
    const StreamKey& key = program.key;
    const Provenance& from = program.provenance;
    if (key.file.size() > kFileBytesMax) return invalid("the file's name is too long");
    if (key.file.find('\0') != std::string::npos)
        return invalid("the file's name holds a zero byte");
    if (key.operation > Operation::kReadWrite) return invalid("no such operation");
    if (from.origin > Origin::kOffline) return invalid("no such origin");
    if (!(from.confidence >= 0 && from.confidence <= 1) || std::signbit(from.confidence)) {
        return invalid("a confidence is a number from 0 to 1");
    }
    Wide places = 1;
    for (const uint64_t places_along : program.grid) {
        if (places_along == 0) return invalid("a dimension of the process grid is 0");
        places *= places_along;
        if (places > kEndMax) return invalid("the process grid has more than 2^63 places");
    }
    const Wide ranks_end = Wide{key.first_rank} + Wide{key.rank_count};
    if (key.rank_count == 0) return invalid("a stream of no rank");
    if (ranks_end > kEndMax) return invalid("a rank beyond 2^63");
    if (places > 1 && ranks_end > places) return invalid("ranks that have no place in the grid");
    return {};
}

// Checks the fields that this kind of node must have and must not have.
Status check_fields(const Node& node) {
    const bool deltas = node.kind == NodeKind::kDeltas, list = node.kind == NodeKind::kList;
    const bool loop = node.kind == NodeKind::kLoop, random = node.kind == NodeKind::kRandom;
    if (node.kind > NodeKind::kRandom) return invalid("no such kind of node");
    if (loop != (node.body > 0)) {
        return invalid(loop ? "a loop without a body" : "a body of what is no loop");
    }
    if (deltas && node.deltas.empty()) return invalid("a delta unit without deltas");
    if (list && node.list.empty()) return invalid("a list without accesses");
    if (node.deltas.size() > kPeriodMax) return invalid("a delta unit of more than 32 deltas");
    if (!deltas && !node.deltas.empty()) return invalid("deltas in what is no delta unit");
    if (!list && !node.list.empty()) return invalid("a list in what is no list");
    if ((loop || random) && !(is_zero(node.offset) && is_zero(node.size))) {
        return invalid("an offset or a size of what is no access");
    }
    if (!loop && !deltas && !random && !is_zero(node.trips)) {
        return invalid("trips of what does not repeat");
    }
    if (!is_sane(node.think)) return invalid("a think time that is negative or no number");
    return {};
}

class Checker {
public:
    explicit Checker(const Program& program) : program_(program) {
        // The ranks of the key fill a range of the last coordinate. They fill all of the
        // coordinates below it, unless the last one is the same for all.
        uint64_t first = program.key.first_rank, last = first + program.key.rank_count - 1;
        uint64_t places = 1;
        for (const uint64_t along : program.grid) places *= along;
        bool narrow = places > 1;
        for (size_t g = kGridMax; g-- > 0;) {
            ranges_[g].high = Wide{program.grid[g]} - 1;
            if (!narrow) continue;
            places /= program.grid[g];
            ranges_[g].low = Wide{first / places};
            ranges_[g].high = Wide{last / places};
            narrow = first / places == last / places;
            first %= places;
            last %= places;
        }
    }

    Status check() {
        Wide count = 0;
        if (Status status = check_body(0, program_.nodes.size(), 0, true, &count); !status.ok()) {
            return status;
        }
        return {};
    }

private:
    // Checks the nodes of one body. `count`: a bound of their accesses.
    Status check_body(size_t begin, size_t end, size_t level, bool reached, Wide* count) {
        for (size_t n = begin; n < end;) {
            const Node& node = program_.nodes[n];
            if (Status status = check_fields(node); !status.ok()) return status;
            const size_t behind = n + 1 + node.body;
            if (behind > end) return invalid("a loop's body is longer than what it is in");
            if (node.kind == NodeKind::kLoop && level == kDepthMax) {
                return invalid("loops nest deeper than 4");
            }
            for (size_t d = level; d < kDepthMax; ++d) {
                if (node.offset.per_loop[d] != 0 || node.size.per_loop[d] != 0 ||
                    node.trips.per_loop[d] != 0) {
                    return invalid("a dependence on a loop that is not around");
                }
            }
            Wide here = 0;
            if (Status status = check_node(n, level, reached, &here); !status.ok()) return status;
            *count += here;
            if (*count > kCountMax) return invalid("more than 2^62 accesses");
            n = behind;
        }
        return {};
    }

    Status check_node(size_t n, size_t level, bool reached, Wide* count) {
        const Node& node = program_.nodes[n];
        const Ranges outside = ranges_;
        Wide turns = 1;
        const bool endless = node.kind == NodeKind::kRandom && is_zero(node.trips);
        if (endless && (level > 0 || n + 1 != program_.nodes.size())) {
            return invalid("a random node without an end is not the last, or in a loop");
        }
        const size_t variable = node.kind == NodeKind::kLoop ? variable_of(level) : kTurn;
        if (node.kind == NodeKind::kLoop || node.kind == NodeKind::kDeltas ||
            node.kind == NodeKind::kRandom) {
            if (Status status = enter(node, level, variable, &turns); !status.ok()) return status;
        }
        Status status;
        switch (node.kind) {
            case NodeKind::kLoop: {
                Wide body = 0;
                status = check_body(n + 1, n + 1 + node.body, level + 1, reached && turns > 0,
                                    &body);
                *count = turns * body;
                break;
            }
            case NodeKind::kRandom:
                *count = turns;
                break;
            case NodeKind::kAccess:
                *count = 1;
                break;
            case NodeKind::kList:
                *count = static_cast<Wide>(node.list.size());
                break;
            case NodeKind::kDeltas:
                *count = 1 + turns * static_cast<Wide>(node.deltas.size());
                break;
        }
        if (status.ok() && reached) status = check_accesses(node, outside, turns);
        ranges_ = outside;
        return status;
    }

    // Sets the range of a loop's index, or of the turn of a unit. `turns`: a bound of its turns.
    Status enter(const Node& node, size_t level, size_t variable, Wide* turns) {
        const Form trips(node.trips);
        const std::optional<Wide> most = maximum(trips, ranges_), least = minimum(trips, ranges_);
        if (!most || !least || *least < kTripsMin) return invalid("trips overflow");
        if (*most > Wide{kTripsMax}) return invalid("a loop of more than 2^40 trips");
        *turns = std::max<Wide>(*most, 0);
        if (*least < 0 && trips.depends(kGridMax, kVariables)) {
            if (Status status = check_negative(trips, level); !status.ok()) return status;
        }
        Range& range = ranges_[variable];
        range.high = std::max<Wide>(*turns - 1, 0);
        range.bounded = trips.depends(0, kVariables);
        range.bound = trips;
        range.bound.base -= 1;
        return {};
    }

    // Checks trips that may be negative. For the nodes inside, the one loop on which they depend is
    // narrowed to where they are not negative.
    Status check_negative(const Form& trips, size_t level) {
        size_t depended = 0, on = 0;
        for (size_t d = 0; d < level; ++d) {
            if (trips.per[variable_of(d)] == 0) continue;
            ++depended;
            on = variable_of(d);
        }
        if (depended > 1 || ranges_[on].bound.depends(kGridMax, kVariables)) {
            return invalid("trips may turn negative in a nest whose accesses cannot be counted");
        }
        Form rest = trips;
        rest.per[on] = 0;
        const std::optional<Wide> base = maximum(rest, ranges_);
        if (!base) return invalid("trips overflow");
        const Wide slope = trips.per[on];
        Range& range = ranges_[on];
        if (slope > 0) range.low = std::max(range.low, ceil_divide(1 - *base, slope));
        if (slope < 0) range.high = std::min(range.high, floor_divide(*base - 1, -slope));
        range.low = std::min(range.low, range.high);
        return {};
    }

    Status check_accesses(const Node& node, const Ranges& outside, Wide turns) {
        const Form offset(node.offset), size(node.size);
        switch (node.kind) {
            case NodeKind::kAccess:
                return check_access(offset, size, outside);
            case NodeKind::kList:
                return check_list(node, offset, size, outside);
            case NodeKind::kDeltas:
                break;
            default:
                return {};
        }
        Status status = check_access(offset, size, outside);
        if (turns == 0) return status;
        Form at = offset, length = size;
        for (const Delta& delta : node.deltas) {
            at.per[kTurn] += delta.offset;
            length.per[kTurn] += delta.size;
        }
        for (const Delta& delta : node.deltas) {
            at.base += delta.offset;
            length.base += delta.size;
            if (status.ok()) status = check_access(at, length, ranges_);
        }
        return status;
    }

    // The extremes of the list stand for the whole list.
    static Status check_list(const Node& node, Form offset, Form size, const Ranges& ranges) {
        Wide first = node.list[0].offset, shortest = node.list[0].size, end = kTripsMin * 4;
        for (const Access& one : node.list) {
            first = std::min<Wide>(first, one.offset);
            shortest = std::min<Wide>(shortest, one.size);
            end = std::max(end, Wide{one.offset} + Wide{one.size});
        }
        Form last = offset;
        if (!add(&last, size, 1)) return invalid("offsets overflow");
        last.base += end;
        offset.base += first;
        size.base += shortest;
        return check_bounds(offset, size, last, ranges);
    }

    static Status check_access(const Form& offset, const Form& size, const Ranges& ranges) {
        Form end = offset;
        if (!add(&end, size, 1)) return invalid("offsets overflow");
        return check_bounds(offset, size, end, ranges);
    }

    static Status check_bounds(const Form& offset, const Form& size, const Form& end,
                               const Ranges& ranges) {
        const std::optional<Wide> first = minimum(offset, ranges), shortest = minimum(size, ranges);
        const std::optional<Wide> last = maximum(end, ranges);
        if (!first || !shortest || !last) return invalid("offsets overflow");
        if (*first < 0) return invalid("an offset may be negative");
        if (*shortest < 0) return invalid("a size may be negative");
        if (*last >= kEndMax) return invalid("an access may end beyond 2^63");
        return {};
    }

    const Program& program_;
    Ranges ranges_;
};

}  // namespace

Status validate(const Program& program) {
    if (program.nodes.size() > kNodesMax) return invalid("more than 64 nodes");
    size_t listed = 0;
    for (const Node& node : program.nodes) listed += node.list.size();
    if (listed > kListMax) return invalid("more than 65536 accesses in lists");
    if (Status status = check_key(program); !status.ok()) return status;
    return Checker(program).check();
}

}  // namespace penstock::access
