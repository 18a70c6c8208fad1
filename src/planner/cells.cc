#include "planner/cells.h"

namespace penstock::planner {

RouteReason Cells::cached_reason(size_t cell) const {
    if ((flags[cell] & CellFlags::kDirty) != 0) return RouteReason::kDirty;
    if (is_fixed(cell)) return RouteReason::kUnaligned;
    return is_missing(cell) ? RouteReason::kCheaperBuffered : RouteReason::kResident;
}

void append(const Leg& leg, Way* way) {
    if (leg.first == leg.last) return;
    if (leg.copied && !way->empty() && way->back().copied) {
        way->back().last = leg.last;
    } else {
        way->push_back(leg);
    }
}

void append_direct(const Cells& cells, size_t first, size_t last, Way* way) {
    while (first < last) {
        size_t end = first + 1;
        while (end < last && cells.size(first, end + 1) <= cells.transfer_size_max) ++end;
        way->push_back({static_cast<uint32_t>(first), static_cast<uint32_t>(end), false});
        first = end;
    }
}

void copy_all(const Cells& cells, Way* way) {
    way->assign(1, {0, static_cast<uint32_t>(cells.count), true});
}

void direct_all(const Cells& cells, Way* way) {
    way->clear();
    for (size_t i = 0; i < cells.count;) {
        const size_t first = i;
        while (i < cells.count && cells.is_fixed(i)) ++i;
        append({static_cast<uint32_t>(first), static_cast<uint32_t>(i), true}, way);
        const size_t direct = i;
        while (i < cells.count && !cells.is_fixed(i)) ++i;
        append_direct(cells, direct, i, way);
    }
}

}  // namespace penstock::planner
