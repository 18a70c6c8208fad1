// A request in progress and its storage operations, as the parts of an executor share them. One
// thread.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <vector>

#include "planner/planner.h"
#include "planner/route_policy.h"
#include "transfer/request.h"
#include "transfer/staging.h"

namespace penstock::transfer {

// Limits of one cached read. It must be short, so that direct transfers are looked after in
// between. If there are none, long calls are cheaper.
inline constexpr uint64_t kCallSizeMax = 1 << 20, kLoneCallSizeMax = 4 << 20;
static_assert(kCallSizeMax <= Staging::kSlotSize);
// Limits of one cached read into staging for a device. The device pauses for some microseconds
// between two copies, but is idle until the first call has ended.
inline constexpr uint64_t kFirstStagedSizeMax = 512 << 10, kStagedCallSizeMax = 2 << 20;
// The grain of residency questions. A plan cannot avoid a shorter cached piece between missing
// ones: to read over it costs less than to find it.
inline constexpr uint64_t kGrainSize = 64 << 10;
inline constexpr uint64_t kPageSize = 4096;  // the smallest page size of the OS page cache
inline constexpr uint64_t kNowhere = UINT64_MAX;

struct ActiveOperation;

struct ActiveRequest {
    Request request;
    planner::RoutePolicy policy;
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

    // Takes the object into use for another request. The lists keep their memory.
    void begin(const Request& asked);
    // Counts the transfers, once they are planned.
    void count_transfers();
    // Records that the bytes from `offset` on did not arrive: because of `at_error`, or at the end
    // of the file if it is 0.
    void stop_at(uint64_t offset, int at_error, Route route);
    // Begins nothing more of a failed write. The transfers that have not begun count as not moved.
    void give_up();
    // Moves the bytes of a refused direct operation to the page cache route.
    void retry_cached(const ActiveOperation& operation);
    // Handles a long call that one bad page ended. The bytes behind the page are read once more, so
    // that only the page is missing. This is done once only, because the storage may take seconds
    // to give up on each bad page.
    void read_behind_error(ActiveOperation* operation);
    // Returns the number of transfers, from the cached one at `first` on, that one call of at most
    // `size_max` bytes can serve.
    [[nodiscard]] size_t joinable(size_t first, uint64_t size_max) const;
    // Adds the bytes of an operation that arrived to the report and the staged part.
    void count_arrived(const ActiveOperation& operation);
    [[nodiscard]] Outcome outcome() const;

    // Returns whether bytes must be copied from the device to staging before the storage writes
    // them.
    [[nodiscard]] bool fetches() const { return request.write && request.device_memory; }
    // Returns whether cached transfers may start.
    [[nodiscard]] bool may_copy() const { return !request.write || direct_left == 0; }
    // Returns whether cached transfers are left that may start.
    [[nodiscard]] bool has_copies() const {
        return may_copy() && (cached_left > 0 || !again.empty());
    }
    [[nodiscard]] bool all_started() const { return started == transfers.size() && again.empty(); }
    [[nodiscard]] DirectTraffic& traffic() const { return request.source->costs->traffic(); }
};

// A storage operation: one direct transfer, or neighbouring cached ones.
struct ActiveOperation {
    ActiveRequest* active = nullptr;
    size_t first = 0, count = 0;  // of active->transfers
    extent::Extent range, moved;
    int32_t staging = -1;      // slot of staging; -1: the bytes go straight to their place
    uint64_t staged_size = 0;  // bytes in staging of a cached read for a device
    uint64_t good = 0;         // bytes of `range` that arrived
    int error = 0;             // why not all did; 0: end of file
    std::vector<iovec> pieces;

    [[nodiscard]] planner::Transfer& front() const { return active->transfers[first]; }
    [[nodiscard]] const Request& request() const { return active->request; }
    [[nodiscard]] bool fills_staged_part() const {
        return request().staged_part != nullptr && front().route == Route::kCached;
    }
};

}  // namespace penstock::transfer
