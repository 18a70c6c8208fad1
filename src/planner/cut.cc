// Cuts a request into cells (cells.h), by alignment and by residency.
#include <algorithm>
#include <bit>

#include "planner/cells.h"

namespace penstock::planner {
namespace {

using extent::Extent;
using extent::Residency;
using extent::ResidencyRun;

// A coarse cell is 1/kCellsInTransfer of the bytes that the storage moves in the time of one more
// transfer, or 1/kCellsInRequest of the request. It is at most 1/kCellsInLargest of the largest
// transfer. Runs shorter than half of the first share cells.
constexpr double kCellsInTransfer = 8;
constexpr uint64_t kCellsInRequest = 512;
constexpr uint64_t kCellsInLargest = 8;
// Larger alignments would make cells that no plan can use.
constexpr uint64_t kAlignmentMax = kRequestSizeMax;

bool usable(uint32_t alignment) {
    return base::is_power_of_two(alignment) && alignment <= kAlignmentMax;
}

// Returns the alignment of an offer that is usable.
uint64_t alignment_of(const DirectOffer& direct) {
    return std::max(direct.offset_alignment, direct.memory_alignment);
}

// Direct transfers are possible in [body, body_end). The cells before and behind it are never
// direct.
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
    // The request lies inside one block, and there is no room for an end that reaches beyond it.
    if (bounds.body >= last || bounds.body_end <= first) {
        bounds = {first, last, last, last};
    }
    return bounds;
}

// Divides a range into pieces of one state. The caller asks for them in order.
class States {
public:
    States(std::span<const ResidencyRun> runs, Residency unknown_as)
        : runs_(runs), unknown_as_(unknown_as) {}

    struct Piece {
        uint64_t end = 0;
        Residency state = Residency::kUnknown;
    };
    // Returns the piece from `at` on. `at` never decreases. Bytes that no run covers are unknown.
    Piece from(uint64_t at) {
        if (at >= now_.end) advance(at);
        return now_;
    }
    // Returns the worst state in `range`: dirty before missing before cached.
    Residency worst(const Extent& range) {
        Residency worst = Residency::kCached;
        for (uint64_t at = range.offset; at < range.end();) {
            const Piece piece = from(at);
            if (worst == Residency::kCached || piece.state == Residency::kDirty)
                worst = piece.state;
            at = piece.end;
        }
        return worst;
    }

private:
    void advance(uint64_t at) {
        for (; next_ < runs_.size(); ++next_) {
            const ResidencyRun& run = runs_[next_];
            if (run.range.offset > at) {
                now_ = {run.range.offset, unknown_as_};
                return;
            }
            if (at - run.range.offset < run.range.size) {
                const uint64_t most = UINT64_MAX - run.range.offset;
                now_ = {run.range.offset + std::min(run.range.size, most),
                        run.state == Residency::kUnknown ? unknown_as_ : run.state};
                ++next_;
                return;
            }
        }
        now_ = {UINT64_MAX, unknown_as_};
    }

    std::span<const ResidencyRun> runs_;
    Residency unknown_as_;
    size_t next_ = 0;  // the first run behind now_
    Piece now_;
};

// Appends cells. The caller has reserved the memory for them.
class Writer {
public:
    Writer(Cells* cells, size_t most) : cells_(*cells) {
        if (cells_.ends.size() <= most) {
            cells_.ends.resize(most + 1);
            cells_.flags.resize(most);
        }
        cells_.count = cells_.directable = 0;
        cells_.ends[0] = {};
        wanted_from_ = static_cast<uint32_t>(cells_.range.offset - cells_.start);
        wanted_to_ = static_cast<uint32_t>(cells_.range.end() - cells_.start);
    }

    // Adds the bytes up to offset `end`, all of one state, to the cell that finish() ends.
    void add(uint64_t end, Residency state) {
        const uint32_t missing = state == Residency::kMissing ? 1 : 0;
        const uint32_t continues = missing & was_missing_;
        sum_.offset = static_cast<uint32_t>(end - cells_.start);
        const uint32_t wanted = std::min(sum_.offset, wanted_to_) - wanted_from_;
        sum_.missing += missing * (wanted - sum_.wanted);
        sum_.wanted = wanted;
        sum_.waits += missing - continues;
        if (fresh_) flags_ = static_cast<uint8_t>(continues * CellFlags::kContinues);
        if (state == Residency::kDirty) flags_ |= CellFlags::kDirty | CellFlags::kFixed;
        fresh_ = false;
        was_missing_ = missing;
    }
    void finish(uint8_t flags) {
        flags |= flags_;
        cells_.flags[cells_.count++] = flags;
        cells_.ends[cells_.count] = sum_;
        cells_.directable += 1 - (flags & CellFlags::kFixed);
        fresh_ = true;
    }

private:
    Cells& cells_;
    CellEnd sum_;
    uint32_t wanted_from_ = 0, wanted_to_ = 0;  // from the start of the cells
    uint32_t was_missing_ = 0;                  // 1 if the bytes before are missing
    uint8_t flags_ = 0;
    bool fresh_ = true;  // the cell has no bytes yet
};
static_assert(CellFlags::kFixed == 1);

// Sizes of cells, in whole pages.
struct Strides {
    uint64_t of_long_runs = 0;   // inside long runs
    uint64_t of_short_runs = 0;  // of cells that short runs share
};

Strides coarse_strides(const CostModel& model, uint64_t page, const Cells& cells) {
    const double one_more = model.direct_ns + model.direct_submit_ns + model.cached_ns;
    const double part = one_more / model.direct_ns_per_byte / kCellsInTransfer;
    const uint64_t most = std::max(cells.transfer_size_max / kCellsInLargest, page);
    const auto rounded = [&](uint64_t size) {
        return std::bit_floor(std::clamp(size, page, most));
    };
    const auto shared = static_cast<uint64_t>(std::min(part, static_cast<double>(most)));
    return {rounded(std::max(shared, cells.range.size / kCellsInRequest)), rounded(shared)};
}

class Cutter {
public:
    Cutter(const Request& request, const Options& options, uint64_t page, const Strides& strides,
           uint8_t fixed, Writer& writer)
        : states_(request.residency, options.unknown_as),
          range_(request.range),
          page_(page),
          stride_(strides.of_long_runs),
          shared_(strides.of_short_runs),
          short_(shared_ > page ? shared_ / 2 : 0),
          fixed_(fixed),
          writer_(writer) {}

    // Appends one cell that is never direct.
    void cut_off(uint64_t from, uint64_t to) {
        if (from == to) return;
        writer_.add(to, states_.worst(extent::intersect({from, to - from}, range_)));
        writer_.finish(CellFlags::kFixed);
    }

    void cut_body(uint64_t at, uint64_t end) {
        while (at < end) {
            const States::Piece piece = states_.from(std::max(at, range_.offset));
            const uint64_t until = piece.end >= range_.end() ? end
                                                             : base::align_down(piece.end, page_);
            if (until <= at) {
                at = cut_page(at, end);
            } else if (until - at < short_ && at % page_ == 0 && piece.state != Residency::kDirty) {
                at = cut_shared(at, end);
            } else {
                at = cut_run(at, until, piece.state);
            }
        }
    }

private:
    [[nodiscard]] uint64_t end_of_page(uint64_t at, uint64_t end) const {
        return std::min(base::align_down(at, page_) + page_, end);
    }
    // Appends a cell of one page that has several states.
    uint64_t cut_page(uint64_t at, uint64_t end) {
        const uint64_t next = end_of_page(at, end);
        writer_.add(next, states_.worst(extent::intersect({at, next - at}, range_)));
        writer_.finish(fixed_);
        return next;
    }
    // The first cell ends where its page ends, so that all others begin with a page.
    uint64_t cut_run(uint64_t at, uint64_t until, Residency state) {
        uint64_t next = at % page_ == 0 ? at + stride_ : end_of_page(at, until);
        for (; at < until; next += stride_) {
            at = std::min(next, until);
            writer_.add(at, state);
            writer_.finish(fixed_);
        }
        return until;
    }
    // Lets short runs share a cell, up to the usual length of a cell.
    uint64_t cut_shared(uint64_t at, uint64_t end) {
        const uint64_t longest = std::min(at + shared_, end);
        const uint64_t first = at;
        while (at < longest) {
            const States::Piece piece = states_.from(std::max(at, range_.offset));
            uint64_t until = piece.end >= range_.end() ? end : base::align_down(piece.end, page_);
            const bool is_long = until <= at || until - at >= short_;
            if (piece.state == Residency::kDirty || (is_long && at > first)) break;
            until = std::min(until, longest);
            writer_.add(until, piece.state);
            at = until;
        }
        writer_.finish(fixed_);
        return at;
    }

    States states_;
    const Extent range_;
    const uint64_t page_, stride_, shared_, short_;
    const uint8_t fixed_;
    Writer& writer_;
};

}  // namespace

std::optional<RouteReason> never_direct(const Request& request) {
    if (request.cached_because.has_value()) return request.cached_because;
    const DirectOffer& direct = request.direct;
    if (!usable(direct.offset_alignment) || !usable(direct.memory_alignment) ||
        direct.route == Route::kCached)
        return RouteReason::kNotOffered;
    if ((request.memory - request.range.offset) % direct.memory_alignment != 0)
        return RouteReason::kBufferMisaligned;
    const Bounds bounds = bounds_of(request, alignment_of(direct));
    if (bounds.body == bounds.body_end) return RouteReason::kUnaligned;
    return std::nullopt;
}

// Each cell but two ends with a page of at least that size, or with the body. Alignment adds at
// most one page at either end.
size_t cells_max(uint64_t size, const Options& options) { return size / options.page_size + 5; }

void cut(const Request& request, const Options& options, const CostModel& model, bool direct,
         Cells* cells) {
    const uint64_t alignment = direct ? alignment_of(request.direct) : 1;
    const Bounds bounds = bounds_of(request, alignment);
    const uint64_t page = std::max(options.page_size, alignment);
    cells->start = bounds.start;
    cells->range = request.range;
    cells->transfer_size_max = std::max(base::align_down(model.transfer_size_max, page), page);

    Strides strides{page, page};
    if (options.coarse) strides = coarse_strides(model, page, *cells);
    Writer writer(cells, cells_max(request.range.size, options));
    Cutter cutter(request, options, page, strides, direct ? 0 : CellFlags::kFixed, writer);
    cutter.cut_off(bounds.start, bounds.body);
    cutter.cut_body(bounds.body, bounds.body_end);
    cutter.cut_off(bounds.body_end, bounds.end);
}

}  // namespace penstock::planner
