// Syncs of one open file by many at once: one at a time is under way, which serves all who asked
// before it began.
//
// The OS tells an error of a sync once for an open file, and all descriptors of kernels have one
// between them: so it is told to all who had asked by then and were not answered. Any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "penstock/status.h"
#include "storage/storage.h"

namespace penstock::service {

class SyncGroup {
public:
    // Waits for storage: for a sync of `file` that began behind this call, at most also for one
    // that was under way.
    Status sync(storage::File& file);

private:
    std::mutex mutex_;  // guards all below
    std::condition_variable ended_;
    bool under_way_ = false;
    uint64_t begun_ = 0, failed_ = 0;
    Status error_;  // of the last that failed
};

}  // namespace penstock::service
