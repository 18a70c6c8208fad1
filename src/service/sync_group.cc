#include "service/sync_group.h"

namespace penstock::service {

Status SyncGroup::sync(storage::File& file) {
    std::unique_lock lock(mutex_);
    const uint64_t wanted = begun_ + 1, failed_before = failed_;
    ended_.wait(lock, [&] { return !under_way_ || begun_ > wanted; });
    if (begun_ < wanted) {
        ++begun_;
        under_way_ = true;
        lock.unlock();
        const Status synced = file.sync(false);
        lock.lock();
        under_way_ = false;
        if (!synced.ok()) {
            ++failed_;
            error_ = synced;
        }
        ended_.notify_all();
    }
    return failed_ == failed_before ? Status() : error_;
}

}  // namespace penstock::service
