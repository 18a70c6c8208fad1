// Cuts a request into cells. A plan may change its route only where a cell ends. A way is a path
// through the cells.
//
// Used only in this room. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/route.h"
#include "planner/planner.h"

namespace penstock::planner {

struct CellFlags {
    static constexpr uint8_t kFixed = 1;      // never direct
    static constexpr uint8_t kDirty = 2;      // a dirty page is the reason for kFixed
    static constexpr uint8_t kContinues = 4;  // begins inside a missing run
};

// The boundary before a cell, or behind the last one. Holds sums over all cells before it.
struct CellEnd {
    uint32_t offset = 0;   // bytes from Cells::start
    uint32_t wanted = 0;   // bytes of the request
    uint32_t missing = 0;  // bytes of `wanted` that are not in the OS page cache
    uint32_t waits = 0;    // missing runs that begin before it
};

struct Cells {
    // The first count + 1 are valid. At both ends of a cell that can be direct, file offsets are
    // multiples of the alignment.
    std::vector<CellEnd> ends;
    std::vector<uint8_t> flags;  // one per cell
    size_t count = 0;

    uint64_t start = 0;  // file offset: the request's, or before it for alignment
    extent::Extent range;
    uint64_t transfer_size_max = 0;  // in whole pages, so that it can be reached from any page
    size_t directable = 0;           // cells without kFixed

    [[nodiscard]] bool any_missing() const { return ends[count].missing > 0; }
    [[nodiscard]] bool is_fixed(size_t cell) const {
        return (flags[cell] & CellFlags::kFixed) != 0;
    }
    [[nodiscard]] bool is_missing(size_t cell) const {
        return ends[cell + 1].missing > ends[cell].missing;
    }
    // Returns how many bytes a transfer of cells [first, last) moves.
    [[nodiscard]] uint64_t size(size_t first, size_t last) const {
        return ends[last].offset - ends[first].offset;
    }
    // Returns the part of the cells [first, last) that the request wants.
    [[nodiscard]] extent::Extent wanted(size_t first, size_t last) const {
        return extent::intersect({start + ends[first].offset, size(first, last)}, range);
    }
    [[nodiscard]] RouteReason cached_reason(size_t cell) const;
};

// Returns why no byte of the request can be direct, or nothing if some can.
[[nodiscard]] std::optional<RouteReason> never_direct(const Request& request);

// Returns a bound that a request of `size` bytes never exceeds in cells.
[[nodiscard]] size_t cells_max(uint64_t size, const Options& options);

// Cuts the request into `*cells`. If `direct` is false, every cell is fixed.
void cut(const Request& request, const Options& options, const CostModel& model, bool direct,
         Cells* cells);

// Cells [first, last), which are copied or moved by one direct transfer.
struct Leg {
    uint32_t first = 0, last = 0;
    bool copied = false;
};
// Legs from the first cell to the last. Two copied legs never follow each other.
using Way = std::vector<Leg>;

// Appends a leg. A copied leg is joined to a copied one before it. An empty leg is ignored.
void append(const Leg& leg, Way* way);

// The two ways that always exist. copy_all() makes nothing direct; direct_all() makes all cells
// direct that can be, in the longest transfers.
void copy_all(const Cells& cells, Way* way);
void direct_all(const Cells& cells, Way* way);
// Appends cells [first, last) as direct transfers of the largest size. None of the cells may be
// fixed.
void append_direct(const Cells& cells, size_t first, size_t last, Way* way);

}  // namespace penstock::planner
