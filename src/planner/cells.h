// A request cut into cells: the pieces between whose ends a plan may change its route.
//
// Inside the room. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "extent/route.h"
#include "planner/planner.h"

namespace penstock::planner {

struct CellFlags {
    static constexpr uint8_t kMissing = 1;  // through the page cache, the thread has to wait
    static constexpr uint8_t kFixed = 2;    // never direct
    static constexpr uint8_t kDirty = 4;    // that is why
};

struct Cells {
    // count() + 1 of them, bytes from `start`, increasing. Between two directable cells, and at
    // both ends of a row of them, they are multiples of the alignment.
    std::vector<uint32_t> ends;
    std::vector<uint8_t> flags;  // of each cell

    uint64_t start = 0;          // offset in the file: at or before the request's
    extent::Extent range;        // the request
    uint64_t transfer_size_max;  // in whole pages: a transfer of that many bytes may start anywhere
    size_t missing = 0;          // cells with kMissing
    size_t directable = 0;       // cells without kFixed

    [[nodiscard]] size_t count() const { return flags.size(); }
    [[nodiscard]] uint64_t width(size_t cell) const { return ends[cell + 1] - ends[cell]; }
    // What of [ends[first], ends[last]) is wanted.
    [[nodiscard]] extent::Extent wanted(size_t first, size_t last) const {
        return extent::intersect({start + ends[first], uint64_t{ends[last]} - ends[first]}, range);
    }
    // Bytes of a cell that are wanted, in relation to all of its bytes only at the two ends.
    [[nodiscard]] uint64_t wanted_size(size_t cell) const {
        if (cell != 0 && cell + 1 != count()) return width(cell);
        return wanted(cell, cell + 1).size;
    }
    [[nodiscard]] extent::RouteReason cached_reason(size_t cell) const;
};

// Why no byte of the request can be direct, if that is so.
[[nodiscard]] std::optional<extent::RouteReason> never_direct(const Request& request);

// Where `direct` is false every cell is fixed. Memory is taken when there are more cells than ever
// before.
void cut(const Request& request, const Options& options, const CostModel& model, bool direct,
         Cells* cells);

// What becomes of each cell.
enum class Step : uint8_t {
    kCopy,   // through the page cache
    kBegin,  // a direct transfer begins with it
    kGoOn,   // it belongs to the direct transfer of the cell before
};

// The two plans that are always there: nothing direct, and all of it as far as it can be, in the
// longest transfers.
void copy_all(const Cells& cells, std::vector<Step>* steps);
void direct_all(const Cells& cells, std::vector<Step>* steps);

}  // namespace penstock::planner
