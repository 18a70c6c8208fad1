// The public file and future: calls passed on.
#include "penstock/file.h"

#include <cerrno>
#include <utility>

#include "file/open_file.h"
#include "transfer/job.h"

namespace penstock {
namespace {

constexpr Status kClosed{EBADF, "read", "the file is closed"};

}  // namespace

Result<File> File::open(const std::string& path, const Device& device, const FileOptions& options) {
    auto opened = file::OpenFile::open(path, device, options);
    if (!opened.ok()) return opened.status();
    return File(std::move(opened.value()));
}

Result<uint64_t> File::read(void* to, uint64_t size, uint64_t offset, Report* report) const {
    if (open_ == nullptr) return kClosed;
    return open_->read(to, size, offset, open_->options().reading, report);
}

Result<uint64_t> File::read(void* to, uint64_t size, uint64_t offset, const ReadOptions& options,
                            Report* report) const {
    if (open_ == nullptr) return kClosed;
    return open_->read(to, size, offset, options, report);
}

Result<uint64_t> File::readv(std::span<const ReadPiece> pieces, const ReadOptions& options,
                             Report* report) const {
    if (open_ == nullptr) return kClosed;
    return open_->readv(pieces, options, report);
}

Result<Future> File::pread(void* to, uint64_t size, uint64_t offset) const {
    if (open_ == nullptr) return kClosed;
    return this->pread(to, size, offset, open_->options().reading);
}

Result<Future> File::pread(void* to, uint64_t size, uint64_t offset,
                           const ReadOptions& options) const {
    const ReadPiece piece{to, size, offset};
    return this->preadv({&piece, 1}, options);
}

Result<Future> File::preadv(std::span<const ReadPiece> pieces, const ReadOptions& options) const {
    if (open_ == nullptr) return kClosed;
    auto job = open_->start(pieces, options);
    if (!job.ok()) return job.status();
    return Future(std::move(job.value()));
}

Result<uint64_t> File::size() const {
    if (open_ == nullptr) return kClosed;
    return open_->size();
}

const std::string& File::path() const {
    static const std::string none;
    return open_ == nullptr ? none : open_->path();
}

const FileOptions& File::options() const {
    static const FileOptions none;
    return open_ == nullptr ? none : open_->options();
}

bool Future::done() const { return job_->done(); }

Status Future::wait(std::chrono::nanoseconds limit) const {
    if (job_->wait(limit)) return {};
    return {ETIMEDOUT, "wait", "the read is still under way"};
}

Result<uint64_t> Future::result(std::chrono::nanoseconds limit) const {
    if (Status status = wait(limit); !status.ok()) return status;
    return job_->result();
}

bool Future::cancel() const { return job_->cancel(); }
void Future::stop() const { job_->stop(); }
void Future::on_done(std::function<void()> callback) const { job_->on_done(std::move(callback)); }
const Report& Future::report() const { return job_->report(); }

}  // namespace penstock
