// Dirty pages that a server writes back, out of the background ring. Threads as server.h says.
#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "service/server.h"

namespace penstock::service {

bool Server::is_before(const Request& a, const Request& b) {
    return a.file_slot != b.file_slot ? a.file_slot < b.file_slot : a.page < b.page;
}

// Of the requests in hand those that are left are to be read; how many.
size_t Server::set_writes_aside(size_t count) {
    if (!background_) return count;  // where no writes are asked for
    size_t reads = 0, writes = 0;
    for (size_t i = 0; i < count; ++i) {
        if (requests_[i].kind == RequestKind::kWritePage) {
            writes_[writes++] = requests_[i];
        } else {
            requests_[reads++] = requests_[i];
        }
    }
    std::sort(writes_, writes_ + writes, is_before);
    return reads;
}

void Server::write_pages(size_t count) {
    const uint64_t began = base::monotonic_ns();
    activity_.store(Activity::kStorage, std::memory_order_release);
    PageWriter::Done done;
    const auto other = [this](const transfer::Outcome& window) {
        finish(runs_[window.cookie], window);
        ended_ |= 1u << (window.cookie - limits::kDrainMax);
    };
    const Status status = writer_->write({writes_, count}, other, &done);
    activity_.store(Activity::kServing, std::memory_order_release);
    beat();
    if (ended_ != 0) read_failed();
    counters_.writes.add(done.operations);
    counters_.bytes_written.add(done.bytes);
    counters_.failed_writes.add(done.failed_pages);
    storage_ns_ += base::monotonic_ns() - began;
    if (status.ok()) return;
    shared_.abort(EIO, "written pages could not be announced to the device");
    stopped_.store(true, std::memory_order_relaxed);
}

}  // namespace penstock::service
