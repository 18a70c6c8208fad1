// What an executor keeps of a request in progress and of a storage operation. Only executor*.cc
// include it. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "transfer/executor.h"
#include "transfer/reasons.h"

namespace penstock::transfer {

// Limits of one cached read. It must be short, so that direct transfers are looked after in
// between. If there are none, long calls are cheaper.
inline constexpr uint64_t kCallSizeMax = 1 << 20, kLoneCallSizeMax = 4 << 20;
static_assert(kCallSizeMax <= Staging::kSlotSize);
// Limits of one cached read into staging for a device. The device pauses for some microseconds
// between two copies, but is idle until the first call has ended.
inline constexpr uint64_t kFirstStagedSizeMax = 512 << 10, kStagedCallSizeMax = 2 << 20;
// Limit of what such calls of one executor have in staging: one part is read, one is copied, and
// one waits. More would leave the CPU's caches before the device has read it.
inline constexpr uint64_t kStagedSizeMax = 3 * kStagedCallSizeMax;
// Limit of a direct transfer into staging. A short one lets the first copy begin sooner.
inline constexpr uint64_t kStagedTransferSizeMax = 512 << 10;
// The grain of residency questions. A plan cannot avoid a shorter cached piece between missing
// ones: to read over it costs less than to find it.
inline constexpr uint64_t kGrainSize = 64 << 10;
inline constexpr uint64_t kPageSize = 4096;  // the smallest page size of the OS page cache
inline constexpr uint64_t kNowhere = UINT64_MAX;

// A request in progress.
struct Executor::Slot {
    Request request;
    std::vector<planner::Transfer> transfers;  // none longer than an operation; by offset
    size_t next_direct = 0, next_cached = 0;   // where to look for the next one of each kind
    size_t started = 0;                        // count of transfers started
    size_t planned = 0;                        // transfers from this index on read bytes once more
    size_t cached_left = 0;                    // cached transfers not started
    size_t direct_left = 0;                    // direct transfers not done
    uint64_t call_size_max = kCallSizeMax;     // of a cached read
    std::vector<size_t> again;  // refused transfers, which now go through the page cache
    std::vector<extent::ResidencyRun> runs;  // for the report: what the page cache held
    size_t running = 0;
    uint32_t operations = 0;
    double beside_copies = 0;      // from the plan
    uint64_t direct_begin_ns = 0;  // start of the first direct transfer; 0: none
    uint64_t stop = kNowhere;      // the first byte that did not arrive
    int error = 0;                 // the cause; 0: the file ends there
    uint64_t sent_ns = 0;          // for the report: when bytes were last sent to the device

    // Adds the bytes that arrived to the report.
    void count_residency(const extent::Extent& arrived, Report* report) const {
        for (const extent::ResidencyRun& run : runs) {
            report->residency_bytes[static_cast<size_t>(run.state)] += extent::intersect(run.range,
                                                                                         arrived)
                                                                           .size;
        }
    }
    // Returns whether bytes must be copied from the device to staging before the storage writes
    // them.
    [[nodiscard]] bool fetches() const { return request.write && request.device_memory; }
    // Returns whether cached transfers may start.
    [[nodiscard]] bool may_copy() const { return !request.write || direct_left == 0; }
    // Returns whether the transfer uses calls that leave nothing in the cache. Part of a dirty
    // range may be missing.
    [[nodiscard]] bool leaves_nothing(const planner::Transfer& transfer) const {
        return drops(transfer) || (request.options.cache == CachePolicy::kDrop &&
                                   transfer.reason == RouteReason::kDirty);
    }
    [[nodiscard]] bool drops(const planner::Transfer& transfer) const {
        return transfer::drops(request.options, transfer.reason);
    }
    [[nodiscard]] bool must_drop() const {
        return insists_on_drop(request.options) && !request.source->probe.in_memory();
    }
    // Returns the reason for the report, once the transfer has taken its route.
    [[nodiscard]] RouteReason reason_of(const planner::Transfer& transfer) const {
        if (request.options.route == Route::kPeer && transfer.route != Route::kPeer)
            return RouteReason::kNoPeer;
        const bool stayed = transfer.route == Route::kCached &&
                            stays(*request.source, request.options, transfer.reason);
        return stayed ? RouteReason::kNoDrop : transfer.reason;
    }
    // Adds the bytes of a transfer that arrived to the report.
    void count_reasons(const planner::Transfer& transfer, const extent::Extent& arrived,
                       Report* report) const {
        transfer::count_reasons(runs, arrived, reason_of(transfer), report);
    }
    [[nodiscard]] bool all_started() const { return started == transfers.size() && again.empty(); }
};

// A storage operation: one direct transfer, or neighbouring cached ones.
struct Executor::Operation {
    Slot* slot = nullptr;
    size_t first = 0, count = 0;  // of slot->transfers
    extent::Extent range, moved;
    int32_t staging = -1;      // slot of staging; -1: the bytes go straight to their place
    uint64_t staged_size = 0;  // its part of Executor::staged_size_
    uint64_t good = 0;         // bytes of `range` that arrived
    int error = 0;             // why not all did; 0: end of file
    std::vector<iovec> pieces;

    [[nodiscard]] planner::Transfer& front() const { return slot->transfers[first]; }
    [[nodiscard]] bool fills_staged_part() const {
        return slot->request.staged_part != nullptr && front().route == Route::kCached;
    }
    // Returns whether the call is long enough that its time is worth two reads of the clock.
    [[nodiscard]] bool is_timed_call() const {
        const bool telling = front().reason == RouteReason::kResident ||
                             front().reason == RouteReason::kTimed;
        if (!telling || range.size < kGrainSize) return false;
        for (size_t i = 1; i < count; ++i) {  // several transfers only if they are parts of one
            if (!slot->request.device_memory || (&front())[i].reason != front().reason)
                return false;
        }
        return true;
    }
};

}  // namespace penstock::transfer
