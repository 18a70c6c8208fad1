#include "transfer/reasons.h"

#include <algorithm>

namespace penstock::transfer {
namespace {

using extent::Extent;
using extent::ResidencyRun;

// Returns the resident bytes of a run from its begin to `end`, if they are spread evenly.
uint64_t resident_before(const ResidencyRun& run, uint64_t end) {
    const auto product = static_cast<unsigned __int128>(run.resident_size) *
                         (end - run.range.offset);
    return static_cast<uint64_t>(product / run.range.size);
}

}  // namespace

void count_reasons(std::span<const ResidencyRun> runs, const Extent& arrived, RouteReason reason,
                   Report* report) {
    const auto add = [&](RouteReason why, uint64_t size) {
        report->reason_bytes[static_cast<size_t>(why)] += size;
    };
    const bool direct = reason == RouteReason::kMissing || reason == RouteReason::kSwallowed;
    const bool copied = reason == RouteReason::kResident || reason == RouteReason::kCheaperBuffered;
    if (!direct && !copied) return add(reason, arrived.size);
    const RouteReason of_resident = direct ? RouteReason::kSwallowed : RouteReason::kResident;
    const RouteReason of_missing = direct ? RouteReason::kMissing : RouteReason::kCheaperBuffered;
    uint64_t rest = arrived.size;
    auto run = std::partition_point(runs.begin(), runs.end(), [&](const ResidencyRun& one) {
        return one.range.end() <= arrived.offset;
    });
    for (; run != runs.end() && run->range.offset < arrived.end(); ++run) {
        const Extent part = extent::intersect(run->range, arrived);
        rest -= part.size;
        if (run->state == Residency::kUnknown) {
            add(RouteReason::kUnknown, part.size);
            continue;
        }
        const uint64_t resident = resident_before(*run, part.end()) -
                                  resident_before(*run, part.offset);
        add(of_resident, resident);
        add(of_missing, part.size - resident);
    }
    add(reason, rest);
}

void add_bytes(Report* to, const Report& from) {
    const auto add_all = [](auto& sums, const auto& more) {
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
    };
    to->bytes += from.bytes;
    add_all(to->route_bytes, from.route_bytes);
    add_all(to->reason_bytes, from.reason_bytes);
    add_all(to->residency_bytes, from.residency_bytes);
}

void add_error(Report* report, int error, uint64_t offset, Route route) {
    if (report->error_number != 0 && report->error_offset <= offset) return;
    report->error_number = error;
    report->error_offset = offset;
    report->error_route = route;
}

}  // namespace penstock::transfer
