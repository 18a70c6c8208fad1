#include "service/write_backs.h"

#include <algorithm>
#include <cerrno>

#include "base/clock.h"

namespace penstock::service {

Status WriteBacks::take_staging() {
    auto writer = PageWriter::create(*shared_.device, *shared_.state, *shared_.files, executor_);
    if (writer.ok()) writer_ = std::move(writer.value());
    return writer.status();
}

std::span<Request> WriteBacks::set_aside(std::span<Request> requests) {
    size_t reads = 0;
    for (const Request& request : requests) {
        if (request.kind == RequestKind::kWritePage) {
            writes_[count_++] = request;
        } else {
            requests[reads++] = request;
        }
    }
    std::sort(writes_, writes_ + count_, is_before);
    return requests.first(reads);
}

// Calls `writing`, which uses the writer. Counts what was written.
void WriteBacks::use_writer(const Writing& writing) {
    const uint64_t began = base::monotonic_ns();
    PageWriter::Done done;
    {
        const Progress::During during(progress_, Activity::kStorage);
        writing([this](const transfer::Outcome& read) { reader_.finish(read); }, &done);
    }
    progress_.counters.storage_ns.add(base::monotonic_ns() - began);
    progress_.beat();
    reader_.read_failed();
    progress_.counters.writes.add(done.operations);
    progress_.counters.bytes_written.add(done.bytes);
    progress_.counters.failed_writes.add(done.failed_pages);
}

void WriteBacks::write() {
    if (count_ == 0) return;
    Status status;
    use_writer([&](const PageWriter::OtherOutcome& other, PageWriter::Done* done) {
        status = writer_->write({writes_, count_}, other, done);
    });
    count_ = 0;
    if (!status.ok()) progress_.fail("written pages could not be announced to the device");
}

int WriteBacks::write_bytes(ControlPort& port) {
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
