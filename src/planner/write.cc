#include <algorithm>

#include "base/units.h"
#include "planner/planner.h"

namespace penstock::planner {

using extent::Extent;

WritePlan plan_write(const WriteRequest& request) {
    WritePlan plan;
    const auto add = [&plan](uint64_t begin, uint64_t end, Route route, RouteReason reason) {
        if (begin == end) return;
        const Extent range{begin, end - begin};
        plan.transfers[plan.count++] = {range, range, route, reason, 0};
    };
    const uint64_t begin = request.range.offset, end = request.range.end();
    const uint64_t alignment = request.direct.offset_alignment;
    const bool offered = base::is_power_of_two(alignment);
    if (!request.direct_asked || !offered) {
        const RouteReason reason = request.direct_asked ? RouteReason::kNotOffered
                                                        : request.cached_because;
        add(begin, end, Route::kCached, reason);
        return plan;
    }
    const uint64_t grain = std::max(alignment, request.page_size);
    const uint64_t last = base::align_down(end, grain);
    const uint64_t first = std::min(begin + (grain - begin % grain) % grain, end);
    if (first >= last) {
        add(begin, end, Route::kCached, RouteReason::kUnaligned);
        return plan;
    }
    add(begin, first, Route::kCached, RouteReason::kUnaligned);
    add(first, last, request.direct.route, RouteReason::kAsked);
    add(last, end, Route::kCached, RouteReason::kUnaligned);
    return plan;
}

}  // namespace penstock::planner
