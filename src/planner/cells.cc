#include "planner/cells.h"

#include <algorithm>
#include <bit>

namespace penstock::planner {
namespace {

using extent::Extent;
using extent::Residency;
using extent::ResidencyRun;
using extent::RouteReason;

// A coarse cell is this part of what a transfer may grow to for nothing.
constexpr uint64_t kCellsInCutoff = 8;
// Alignments above make cells that no plan can use.
constexpr uint64_t kAlignmentMax = kRequestSizeMax;

bool usable(uint32_t alignment) {
    return base::is_power_of_two(alignment) && alignment <= kAlignmentMax;
}

// Of an offer that can be used.
uint64_t alignment_of(const DirectOffer& direct) {
    return std::max(direct.offset_alignment, direct.memory_alignment);
}

// Where direct transfers begin and end, and the cells before and behind that.
struct Bounds {
    uint64_t start = 0, body = 0, body_end = 0, end = 0;  // increasing
};

Bounds bounds_of(const Request& request, uint64_t alignment) {
    const uint64_t first = request.range.offset, last = request.range.end();
    Bounds bounds{first, first, last, last};
    const uint64_t before = first - base::align_down(first, alignment);
    const uint64_t behind = base::align_up(last, alignment) - last;
    if (before <= request.room_before) {
        bounds.start = bounds.body = first - before;
    } else {
        bounds.body = std::min(base::align_up(first, alignment), last);
    }
    if (behind <= request.room_behind) {
        bounds.end = bounds.body_end = last + behind;
    } else {
        bounds.body_end = base::align_down(last, alignment);
    }
    // Inside one block, of which an end sticks out for which there is no room.
    if (bounds.body >= last || bounds.body_end <= first) {
        bounds = {first, last, last, last};
    }
    return bounds;
}

// The states of the bytes, asked for in order.
class States {
public:
    States(std::span<const ResidencyRun> runs, Residency unknown_as)
        : runs_(runs), unknown_as_(unknown_as) {}

    // The worst state in `range` (dirty, missing, cached), and up to where from range.offset on
    // it is the state of every byte; that is `range`'s end where states mix.
    Residency at(const Extent& range, uint64_t* same_until) {
        while (next_ < runs_.size() && end_of(runs_[next_]) <= range.offset) ++next_;
        size_t run = next_;
        uint64_t place = range.offset;
        Residency worst = Residency::kCached;
        while (place < range.end()) {
            uint64_t until = UINT64_MAX;
            Residency state = unknown_as_;
            if (run < runs_.size() && runs_[run].range.offset <= place) {
                until = end_of(runs_[run]);
                state = runs_[run].state == Residency::kUnknown ? unknown_as_ : runs_[run].state;
                ++run;
            } else if (run < runs_.size()) {
                until = runs_[run].range.offset;
            }
            if (rank(state) > rank(worst)) worst = state;
            if (place == range.offset) *same_until = std::max(until, range.end());
            if (until < range.end()) *same_until = range.end();
            place = std::max(place, until);
        }
        return worst;
    }

private:
    static int rank(Residency state) {
        return state == Residency::kCached ? 0 : state == Residency::kDirty ? 2 : 1;
    }
    static uint64_t end_of(const ResidencyRun& run) {
        return run.range.size > UINT64_MAX - run.range.offset ? UINT64_MAX : run.range.end();
    }

    std::span<const ResidencyRun> runs_;
    Residency unknown_as_;
    size_t next_ = 0;  // the first that may reach beyond what was asked
};

void add(Cells* cells, uint64_t end, uint8_t flags) {
    cells->ends.push_back(static_cast<uint32_t>(end - cells->start));
    cells->flags.push_back(flags);
    cells->missing += (flags & CellFlags::kMissing) != 0 ? 1 : 0;
    cells->directable += (flags & CellFlags::kFixed) != 0 ? 0 : 1;
}

uint8_t flags_of(Residency state) {
    if (state == Residency::kDirty) return CellFlags::kDirty | CellFlags::kFixed;
    return state == Residency::kMissing ? CellFlags::kMissing : 0;
}

}  // namespace

RouteReason Cells::cached_reason(size_t cell) const {
    const uint8_t bits = flags[cell];
    if ((bits & CellFlags::kDirty) != 0) return RouteReason::kDirty;
    if ((bits & CellFlags::kFixed) != 0) return RouteReason::kUnaligned;
    return (bits & CellFlags::kMissing) != 0 ? RouteReason::kCheaperBuffered
                                             : RouteReason::kResident;
}

std::optional<RouteReason> never_direct(const Request& request) {
    if (request.cached_because.has_value()) return request.cached_because;
    const DirectOffer& direct = request.direct;
    if (!usable(direct.offset_alignment) || !usable(direct.memory_alignment) ||
        direct.route == extent::Route::kCached)
        return RouteReason::kNotOffered;
    if ((request.memory - request.range.offset) % direct.memory_alignment != 0)
        return RouteReason::kBufferMisaligned;
    const Bounds bounds = bounds_of(request, alignment_of(direct));
    if (bounds.body == bounds.body_end) return RouteReason::kUnaligned;
    return std::nullopt;
}

void cut(const Request& request, const Options& options, const CostModel& model, bool direct,
         Cells* cells) {
    const uint64_t alignment = direct ? alignment_of(request.direct) : 1;
    const Bounds bounds = bounds_of(request, alignment);
    const uint64_t page = std::max(options.page_size, alignment);
    const uint8_t fixed = direct ? 0 : CellFlags::kFixed;
    cells->ends.clear();
    cells->flags.clear();
    cells->start = bounds.start;
    cells->range = request.range;
    cells->transfer_size_max = std::max(base::align_down(model.transfer_size_max, page), page);
    cells->missing = cells->directable = 0;
    cells->ends.push_back(0);

    const uint64_t free = std::min(model.cutoff_size, cells->transfer_size_max);
    const uint64_t coarse = std::bit_floor(std::max(free / kCellsInCutoff, uint64_t{1}));
    const uint64_t stride = options.coarse ? std::max(coarse, page) : page;
    States states(request.residency, options.unknown_as);
    const auto state_of = [&](uint64_t from, uint64_t to, uint64_t* same_until) {
        return states.at(extent::intersect({from, to - from}, request.range), same_until);
    };
    uint64_t same_until = 0;
    if (bounds.start < bounds.body) {
        const Residency state = state_of(bounds.start, bounds.body, &same_until);
        add(cells, bounds.body, flags_of(state) | CellFlags::kFixed);
    }
    for (uint64_t at = bounds.body; at < bounds.body_end;) {
        const uint64_t next = std::min(base::align_down(at, page) + page, bounds.body_end);
        const Residency state = state_of(at, next, &same_until);
        uint64_t until = std::max(base::align_down(same_until, page), next);
        if (same_until >= request.range.end()) until = bounds.body_end;
        until = std::min(until, bounds.body_end);
        // From the start of a page on, so that a long run's transfers can be of the largest size.
        uint64_t end = at % page == 0 ? std::min(at + stride, until) : next;
        for (; at < until; end = std::min(end + stride, until)) {
            add(cells, end, flags_of(state) | fixed);
            at = end;
        }
    }
    if (bounds.body_end < bounds.end) {
        const Residency state = state_of(bounds.body_end, bounds.end, &same_until);
        add(cells, bounds.end, flags_of(state) | CellFlags::kFixed);
    }
}

void copy_all(const Cells& cells, std::vector<Step>* steps) {
    steps->assign(cells.count(), Step::kCopy);
}

void direct_all(const Cells& cells, std::vector<Step>* steps) {
    steps->resize(cells.count());
    size_t first = 0;
    bool in_transfer = false;
    for (size_t i = 0; i < cells.count(); ++i) {
        if ((cells.flags[i] & CellFlags::kFixed) != 0) {
            (*steps)[i] = Step::kCopy;
            in_transfer = false;
            continue;
        }
        if (!in_transfer || cells.ends[i + 1] - cells.ends[first] > cells.transfer_size_max) {
            first = i;
            (*steps)[i] = Step::kBegin;
        } else {
            (*steps)[i] = Step::kGoOn;
        }
        in_transfer = true;
    }
}

}  // namespace penstock::planner
