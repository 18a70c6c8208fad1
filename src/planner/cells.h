// A request cut into cells, the pieces between whose ends a plan may change its route; and a way
// through them.
//
// Inside the room. Pure; one thread.
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
    static constexpr uint8_t kDirty = 2;      // that is why
    static constexpr uint8_t kContinues = 4;  // begins inside a missing run
};

// Between two cells, and before the first and behind the last: sums over all cells before it.
struct CellEnd {
    uint32_t offset = 0;   // bytes from Cells::start
    uint32_t wanted = 0;   // bytes of the request
    uint32_t missing = 0;  // of them not in the OS page cache
    uint32_t waits = 0;    // missing runs that begin
};

struct Cells {
    // count + 1 that matter. Where a directable cell begins or ends, offsets in the file are
    // multiples of the alignment.
    std::vector<CellEnd> ends;
    std::vector<uint8_t> flags;  // of each cell
    size_t count = 0;

    uint64_t start = 0;  // offset in the file: the request's, or before it for alignment
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
    // Bytes that a transfer of cells [first, last) moves.
    [[nodiscard]] uint64_t size(size_t first, size_t last) const {
        return ends[last].offset - ends[first].offset;
    }
    // What of them is wanted.
    [[nodiscard]] extent::Extent wanted(size_t first, size_t last) const {
        return extent::intersect({start + ends[first].offset, size(first, last)}, range);
    }
    [[nodiscard]] RouteReason cached_reason(size_t cell) const;
};

// Why no byte of the request can be direct, if that is so.
[[nodiscard]] std::optional<RouteReason> never_direct(const Request& request);

// More cells than a request of `size` bytes ever has.
[[nodiscard]] size_t cells_max(uint64_t size, const Options& options);

// Where `direct` is false every cell is fixed.
void cut(const Request& request, const Options& options, const CostModel& model, bool direct,
         Cells* cells);

// Cells [first, last): copied, or moved by one direct transfer.
struct Leg {
    uint32_t first = 0, last = 0;
    bool copied = false;
};
// Legs from the first cell to the last. Two that are copied never follow each other.
using Way = std::vector<Leg>;

// Adds a leg; one that is copied joins a copied one before it. An empty one adds nothing.
void append(const Leg& leg, Way* way);

// The two ways that are always there: nothing direct, and all of it as far as it can be, in the
// longest transfers.
void copy_all(const Cells& cells, Way* way);
void direct_all(const Cells& cells, Way* way);
// Cells [first, last), none of them fixed, in the longest transfers.
void append_direct(const Cells& cells, size_t first, size_t last, Way* way);

}  // namespace penstock::planner
