// What an executor keeps of a request in work and of a storage operation. Only executor*.cc include
// it. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "transfer/executor.h"
#include "transfer/reasons.h"

namespace penstock::transfer {

// Of one cached read: small enough that direct transfers are looked after in between; where there
// are none, long calls are cheaper.
inline constexpr uint64_t kCallSizeMax = 1 << 20, kLoneCallSizeMax = 4 << 20;
static_assert(kCallSizeMax <= Staging::kSlotSize);
// The same into staging for a device: it pauses for some microseconds between two copies, but has
// nothing to do until the first call is over.
inline constexpr uint64_t kFirstStagedSizeMax = 512 << 10, kStagedCallSizeMax = 2 << 20;
// What such calls of one executor have in staging: one that is read, one that is copied, one that
// waits. More would leave the CPU's caches before the device has read it.
inline constexpr uint64_t kStagedSizeMax = 3 * kStagedCallSizeMax;
// A direct transfer into staging: the first is copied the sooner.
inline constexpr uint64_t kStagedTransferSizeMax = 512 << 10;
// What is told of residency, and so what a plan can go round: a cached piece within missing ones
// that is shorter than this costs less to pass over than to find.
inline constexpr uint64_t kGrainSize = 64 << 10;
inline constexpr uint64_t kPageSize = 4096;  // the least that the OS page cache may hold
inline constexpr uint64_t kNowhere = UINT64_MAX;

// A request in work.
struct Executor::Slot {
    Request request;
    std::vector<planner::Transfer> transfers;  // none longer than an operation; by offset
    size_t next_direct = 0, next_cached = 0;   // where to look for the next of a kind
    size_t started = 0;                        // how many have been
    size_t planned = 0;                        // from here on: what is read once more
    size_t cached_left = 0;                    // cached ones that have not
    size_t direct_left = 0;                    // direct ones that are not over
    uint64_t call_size_max = kCallSizeMax;     // of a cached read
    std::vector<size_t> again;  // transfers that were refused and go through the page cache
    std::vector<extent::ResidencyRun> runs;  // for the report: what the page cache held
    size_t running = 0;
    uint32_t operations = 0;
    double beside_copies = 0;      // its plan's
    uint64_t direct_begin_ns = 0;  // when its first direct transfer started; 0: none has
    uint64_t stop = kNowhere;      // the first byte that did not arrive
    int error = 0;                 // why; 0: the file ends there
    uint64_t sent_ns = 0;          // for the report: when bytes last left for the device

    // For the report: these bytes arrived.
    void count_residency(const extent::Extent& arrived, Report* report) const {
        for (const extent::ResidencyRun& run : runs) {
            report->residency_bytes[static_cast<size_t>(run.state)] += extent::intersect(run.range,
                                                                                         arrived)
                                                                           .size;
        }
    }
    // What storage is to write comes to staging first.
    [[nodiscard]] bool fetches() const { return request.write && request.device_memory; }
    // Whether cached transfers may start.
    [[nodiscard]] bool may_copy() const { return !request.write || direct_left == 0; }
    // Whether it goes by calls that leave nothing. Of what is dirty some may be missing.
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
    // Why it took its route, when it has, as the report tells.
    [[nodiscard]] RouteReason reason_of(const planner::Transfer& transfer) const {
        if (request.options.route == Route::kPeer && transfer.route != Route::kPeer)
            return RouteReason::kNoPeer;
        const bool stayed = transfer.route == Route::kCached &&
                            stays(*request.source, request.options, transfer.reason);
        return stayed ? RouteReason::kNoDrop : transfer.reason;
    }
    // For the report: these bytes of a transfer arrived.
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
    int32_t staging = -1;      // its slot; -1: straight to its place
    uint64_t staged_size = 0;  // of staged_size_
    uint64_t good = 0;         // bytes of `range` that arrived, and
    int error = 0;             // why not all; 0: the end of the file
    std::vector<iovec> pieces;

    [[nodiscard]] planner::Transfer& front() const { return slot->transfers[first]; }
    [[nodiscard]] bool lands() const {
        return slot->request.landing != nullptr && front().route == Route::kCached;
    }
    // Long enough for what it takes to be worth two looks at the clock.
    [[nodiscard]] bool is_timed_call() const {
        const bool telling = front().reason == RouteReason::kResident ||
                             front().reason == RouteReason::kTimed;
        if (!telling || range.size < kGrainSize) return false;
        for (size_t i = 1; i < count; ++i) {  // several only where they were one that was cut
            if (!slot->request.device_memory || (&front())[i].reason != front().reason)
                return false;
        }
        return true;
    }
};

}  // namespace penstock::transfer
