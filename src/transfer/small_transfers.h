// Small reads and writes of an executor: one storage operation each, without a plan, at the least
// cost.
//
// A read goes through the page cache without a question, unless such reads were slow lately
// (route_trial.h) or are to leave nothing in the cache. Requires that nothing else is outstanding
// in the queue. One thread.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <span>

#include "storage/storage.h"
#include "transfer/active_request.h"
#include "transfer/staging.h"

namespace penstock::transfer {

// The result of a small read or write, all of which took one route.
struct SmallOutcome {
    storage::Completion completion;
    Route route = Route::kCached;
    RouteReason reason = RouteReason::kSmall;
    Residency residency = Residency::kUnknown;
    uint64_t resident_size = 0;  // bytes of it in the OS page cache, if that was asked
};
void add_to(Report* report, uint64_t offset, const SmallOutcome& outcome);

class SmallTransfers {
public:
    // Both must outlive this object.
    SmallTransfers(storage::Queue& queue, Staging& staging) : queue_(queue), staging_(staging) {}

    // Requires RoutePolicy::is_small().
    [[nodiscard]] SmallOutcome read(Source& source, uint64_t offset, const iovec& to,
                                    const ReadOptions& options);
    [[nodiscard]] SmallOutcome write(Source& source, uint64_t offset, const iovec& from,
                                     const ReadOptions& options);
    // Writes any number of bytes to the end of a file that appends. With `strict`, fails with
    // EOPNOTSUPP and writes nothing if they are to bypass the cache.
    [[nodiscard]] SmallOutcome append(Source& source, std::span<const iovec> from,
                                      const ReadOptions& options);

private:
    void move_cached(const Source& source, const storage::Operation& operation,
                     const planner::RoutePolicy& policy, SmallOutcome* outcome);
    storage::Completion read_direct(Source& source, storage::Operation operation);
    SmallOutcome ask_residency(Source& source, uint64_t offset, uint64_t size);
    SmallOutcome read_missing(Source& source, const storage::Operation& operation,
                              const planner::RoutePolicy& policy, SmallOutcome outcome);
    SmallOutcome read_probing(Source& source, const storage::Operation& operation,
                              const planner::RoutePolicy& policy);

    storage::Queue& queue_;
    Staging& staging_;
    std::array<extent::ResidencyRun, kPlanSizeMin / kPageSize + 2> runs_;
};

}  // namespace penstock::transfer
