// Combines concurrent syncs of one open file. One sync at a time is in progress; it serves all
// callers that called before it began.
//
// The OS reports a sync error once per open file, and all descriptors of kernels share one. So each
// error is returned to all callers that had called by then and were not answered. Any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "penstock/status.h"
#include "storage/storage.h"

namespace penstock::service {

class SyncGroup {
public:
    // Waits for a sync of `file` that began after this call, and before that at most for one that
    // was in progress.
    Status sync(storage::File& file);

private:
    std::mutex mutex_;  // guards all members below
    std::condition_variable ended_;
    bool under_way_ = false;
    uint64_t begun_ = 0, failed_ = 0;
    Status error_;  // of the last sync that failed
};

}  // namespace penstock::service
