// Writes back the dirty pages that a server gets from the background ring. server.h states the
// threads.
#include <algorithm>
#include <cerrno>
#include <span>

#include "base/clock.h"
#include "service/server.h"

namespace penstock::service {

bool Server::is_before(const Request& a, const Request& b) {
    return a.file_slot != b.file_slot ? a.file_slot < b.file_slot : a.page < b.page;
}

// Moves the writes among the current requests aside. Returns the count of the others, which are
// reads.
size_t Server::set_writes_aside(size_t count) {
    if (!background_) return count;  // other rings have no writes
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

// Calls `writing`, which uses the writer. Handles windows that end meanwhile, and counts what was
// written.
void Server::use_writer(const Writing& writing) {
    const uint64_t began = base::monotonic_ns();
    const Activity before = activity_.exchange(Activity::kStorage, std::memory_order_acq_rel);
    PageWriter::Done done;
    const auto other = [this](const transfer::Outcome& window) {
        finish(runs_[window.cookie], window);
        end_windows(runs_[window.cookie]);
    };
    writing(other, &done);
    activity_.store(before, std::memory_order_release);
    beat();
    if (ended_ != 0) read_failed();
    counters_.writes.add(done.operations);
    counters_.bytes_written.add(done.bytes);
    counters_.failed_writes.add(done.failed_pages);
    storage_ns_ += base::monotonic_ns() - began;
}

void Server::write_pages(size_t count) {
    Status status;
    use_writer([&](const PageWriter::OtherOutcome& other, PageWriter::Done* done) {
        status = writer_->write({writes_, count}, other, done);
    });
    if (status.ok()) return;
    shared_.abort(EIO, "written pages could not be announced to the device");
    stopped_.store(true, std::memory_order_relaxed);
}

// Writes the bytes of a kernel's control call at once. Returns an errno.
int Server::write_bytes(ControlPort& port) {
    const auto bytes = std::as_writable_bytes(std::span(port.path));
    const auto count = static_cast<size_t>(port.flags);
    if (count == 0 || count > bytes.size()) return EINVAL;
    const auto source = shared_.files->source_of(port.descriptor);
    if (source == nullptr) return EBADF;
    int error = 0;
    use_writer([&](const PageWriter::OtherOutcome& other, PageWriter::Done* done) {
        error = writer_->write_bytes(*source, port.size, bytes.first(count), other, done);
    });
    return error;
}

}  // namespace penstock::service
