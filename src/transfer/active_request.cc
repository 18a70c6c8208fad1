#include "transfer/active_request.h"

#include <algorithm>
#include <cerrno>

#include "base/units.h"
#include "transfer/reasons.h"

namespace penstock::transfer {

using extent::Extent;
using planner::Transfer;

void ActiveRequest::begin(const Request& asked) {
    request = asked;
    policy = asked.source->policy(asked.options);
    transfers.clear();
    again.clear();
    runs.clear();
    next_direct = next_cached = started = running = 0;
    operations = 0;
    direct_begin_ns = sent_ns = 0;
    beside_copies = 0;
    stop = kNowhere;
    error = 0;
}

void ActiveRequest::count_transfers() {
    planned = transfers.size();
    cached_left = static_cast<size_t>(
        std::count_if(transfers.begin(), transfers.end(),
                      [](const Transfer& transfer) { return transfer.route == Route::kCached; }));
    direct_left = planned - cached_left;
}

void ActiveRequest::stop_at(uint64_t offset, int at_error, Route route) {
    // At equal offsets an error takes precedence over end of file.
    if (offset < stop || (offset == stop && error == 0)) {
        stop = offset;
        error = at_error;
    }
    if (request.report != nullptr && at_error != 0)
        add_error(request.report, at_error, offset, route);
}

void ActiveRequest::give_up() {
    const int cause = error;
    const auto skip = [&](size_t index) {
        const Transfer& transfer = transfers[index];
        stop_at(transfer.range.offset, cause, transfer.route);
    };
    for (const size_t index : again) skip(index);
    for (size_t i = next_direct; i < transfers.size(); ++i) {
        if (transfers[i].route != Route::kCached) skip(i);
    }
    for (size_t i = next_cached; i < transfers.size(); ++i) {
        if (transfers[i].route == Route::kCached) skip(i);
    }
    started = next_direct = next_cached = transfers.size();
    cached_left = 0;
    again.clear();
}

void ActiveRequest::retry_cached(const ActiveOperation& operation) {
    Transfer& front = operation.front();
    front.route = Route::kCached;
    front.reason = RouteReason::kRefused;
    front.moved = front.range;
    front.swallowed_size = 0;
    --direct_left;
    if (operation.first < next_cached) {
        again.push_back(operation.first);
    } else {  // the search for cached transfers finds it
        --started;
        ++cached_left;
    }
}

void ActiveRequest::read_behind_error(ActiveOperation* operation) {
    const bool of_bytes = operation->error == EIO || operation->error == ENODATA ||
                          operation->error == EBADMSG || operation->error == EILSEQ;
    const uint64_t bad = operation->range.offset + operation->good;
    const uint64_t behind = base::align_down(bad, kPageSize) + kPageSize;
    if (!of_bytes || operation->first >= planned || behind >= operation->range.end()) return;
    const Extent rest{behind, operation->range.end() - behind};
    for (size_t i = operation->first; i < operation->first + operation->count; ++i) {
        Transfer part = transfers[i];
        part.range = part.moved = intersect(part.range, rest);
        if (part.range.empty()) continue;
        transfers.push_back(part);
        ++cached_left;
    }
    operation->range.size = operation->moved.size = behind - operation->range.offset;
}

size_t ActiveRequest::joinable(size_t first, uint64_t size_max) const {
    const Transfer& front = transfers[first];
    size_t count = 1;
    for (; first + count < transfers.size(); ++count) {
        const Transfer& more = transfers[first + count];
        if (more.route != Route::kCached ||
            policy.drops(more.reason) != policy.drops(front.reason) ||
            policy.leaves_nothing(more.reason) != policy.leaves_nothing(front.reason) ||
            more.range.end() - front.range.offset > size_max ||
            more.range.offset != transfers[first + count - 1].range.end())
            break;
    }
    return count;
}

void ActiveRequest::count_arrived(const ActiveOperation& operation) {
    const Extent arrived{operation.range.offset, operation.good};
    StagedPart* const staged_part = operation.fills_staged_part() ? request.staged_part : nullptr;
    if (staged_part != nullptr && !arrived.empty()) staged_part->extents.push_back(arrived);
    if (request.report == nullptr) return;
    Report* const report = staged_part != nullptr ? &staged_part->report : request.report;
    for (size_t i = 0; i < operation.count; ++i) {
        const Transfer& transfer = transfers[operation.first + i];
        const uint64_t bytes = intersect(transfer.range, arrived).size;
        report->bytes += bytes;
        report->route_bytes[static_cast<size_t>(transfer.route)] += bytes;
        count_reasons(
            runs, {transfer.range.offset, bytes},
            policy.reported(transfer.route, transfer.reason, request.source->file->drop_refused()),
            report);
    }
    for (const extent::ResidencyRun& run : runs) {
        report->residency_bytes[static_cast<size_t>(run.state)] += intersect(run.range, arrived)
                                                                       .size;
    }
}

Outcome ActiveRequest::outcome() const {
    if (stop == kNowhere) return {request.cookie, request.size, 0, operations};
    return {request.cookie, stop - request.offset, error, operations};
}

}  // namespace penstock::transfer
