// The parts of an executor that only writes need: their plan, and their way through staging, which
// comes before the storage. executor.cc has the parts that reads share.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transfer/executor_slot.h"

namespace penstock::transfer {

using extent::Extent;
using planner::Transfer;

void Executor::plan_write(Slot& slot) {
    const Request& request = slot.request;
    const Source& source = *request.source;
    const storage::DirectAlignment alignment = source.file->direct_alignment();
    planner::WriteRequest wanted;
    wanted.range = {request.offset, request.size};
    wanted.direct = {Route::kDirect, alignment.offset, alignment.memory};
    wanted.direct_asked = asks_direct(request.options);
    if (wanted.direct_asked && source.direct_refused.load(std::memory_order_relaxed)) {
        wanted.direct_asked = false;
        wanted.cached_because = RouteReason::kRefused;
    } else if (const auto why = asks_cached(request.options); why.has_value()) {
        wanted.cached_because = *why;
    }
    const planner::WritePlan plan = planner::plan_write(wanted);
    const std::span<const Transfer> planned(plan.transfers.data(), plan.count);
    const std::optional<Route> only = request.options.strict ? asked_route(request.options)
                                                             : std::nullopt;
    for (const Transfer& transfer : planned) {
        if (!only.has_value() || transfer.route == *only) continue;
        return stop_at(slot, request.offset, EOPNOTSUPP, *only);  // nothing is written
    }
    run_count_ = 0;
    cut(slot, planned);
}

// Copies from the request to staging. The host can address both.
void Executor::gather(Operation& operation) {
    const Request& request = operation.slot->request;
    auto* const to = static_cast<std::byte*>(operation.pieces.front().iov_base);
    uint64_t at = request.offset;
    for (const iovec& piece : request.pieces) {
        const Extent part = extent::intersect({at, piece.iov_len}, operation.range);
        if (!part.empty()) {
            std::memcpy(to + (part.offset - operation.range.offset),
                        static_cast<const std::byte*>(piece.iov_base) + (part.offset - at),
                        part.size);
        }
        at += piece.iov_len;
    }
}

// Submits a copy from the device to staging, behind the copies in flight.
void Executor::fetch(Operation& operation) {
    const Request& request = operation.slot->request;
    parts_.clear();
    uint64_t at = request.offset;
    for (const iovec& piece : request.pieces) {
        const Extent part = extent::intersect({at, piece.iov_len}, operation.range);
        if (!part.empty())
            parts_.push_back(
                {static_cast<std::byte*>(piece.iov_base) + (part.offset - at), part.size});
        at += piece.iov_len;
    }
    const Status status = staging_->copy_in(operation.staging, operation.moved.offset % kPageSize,
                                            parts_);
    operation.good = 0;
    operation.error = status.ok() ? 0 : EIO;
    copying_[static_cast<size_t>(operation.staging)] = &operation;
}

// Handles the end of a copy to staging.
void Executor::end_fetch(Operation& operation) {
    if (operation.error != 0) return arrive(operation);
    fetched_.push_back(&operation);
}

// Puts all direct transfers into the batch and, with `copies`, one cached one. Returns whether
// there was a cached one.
bool Executor::put_fetched_into_batch(bool copies) {
    bool copied = false;
    std::erase_if(fetched_, [&](Operation* operation) {
        if (const int error = operation->slot->error; error != 0) {  // begin nothing more
            operation->error = error;
            arrive(*operation);
            return true;
        }
        const bool copy = operation->front().route == Route::kCached;
        if (copy && (!copies || copied)) return false;
        copied = copied || copy;
        put_into_batch(*operation);
        return true;
    });
    return copied;
}

// Begins nothing more of a failed write. The transfers that have not begun count as not moved.
void Executor::give_up(Slot& slot) {
    const int error = slot.error;
    const auto skip = [&](size_t index) {
        const Transfer& transfer = slot.transfers[index];
        stop_at(slot, transfer.range.offset, error, transfer.route);
    };
    for (const size_t index : slot.again) skip(index);
    for (size_t i = slot.next_direct; i < slot.transfers.size(); ++i) {
        if (slot.transfers[i].route != Route::kCached) skip(i);
    }
    for (size_t i = slot.next_cached; i < slot.transfers.size(); ++i) {
        if (slot.transfers[i].route == Route::kCached) skip(i);
    }
    slot.started = slot.next_direct = slot.next_cached = slot.transfers.size();
    slot.cached_left = 0;
    slot.again.clear();
    std::erase(unstarted_, &slot);
}

}  // namespace penstock::transfer
