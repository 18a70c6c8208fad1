// The public file and future: forward calls to the open file and the job.
#include "penstock/file.h"

#include <cerrno>
#include <utility>

#include "file/open_file.h"
#include "transfer/job.h"

namespace penstock {
namespace {

constexpr Status kNotOpen{EBADF, "file", "the file is closed"};
constexpr Status kForked{ECHILD, "wait", "it was under way in this process's parent"};

}  // namespace

// Keeps the open file alive while this object exists.
class File::Use {
public:
    // The acquire pairs with close() and with the end of another use. The last of these releases
    // the open file.
    explicit Use(const File& file)
        : file_(file), was_(file.uses_.fetch_add(kUse, std::memory_order_acquire)) {}
    ~Use() {
        const uint64_t was = file_.uses_.fetch_sub(kUse, std::memory_order_acq_rel);
        if ((was & kClosed) != 0 && was / kUse == 1) [[unlikely]]
            file_.release();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

    explicit operator bool() const { return (was_ & kClosed) == 0; }
    file::OpenFile* operator->() const { return file_.open_.get(); }
    [[nodiscard]] std::shared_ptr<file::OpenFile> share() const { return file_.open_; }

private:
    const File& file_;
    const uint64_t was_;
};

File::File(std::shared_ptr<file::OpenFile> open)
    : uses_(open != nullptr ? 0 : kClosed | kReleased), open_(std::move(open)) {}

File::File(const File& other) {
    const Use use(other);
    if (!use) return;
    open_ = use.share();
    uses_.store(0, std::memory_order_relaxed);
}

// Requires that no call is in progress on `other`.
File::File(File&& other) noexcept
    : uses_(other.uses_.exchange(kClosed | kReleased, std::memory_order_relaxed)),
      open_(std::move(other.open_)) {}

File& File::operator=(File other) noexcept {
    open_ = std::move(other.open_);
    uses_.store(other.uses_.exchange(kClosed | kReleased, std::memory_order_relaxed),
                std::memory_order_relaxed);
    return *this;
}

void File::close() {
    if (uses_.fetch_or(kClosed, std::memory_order_acq_rel) / kUse == 0) release();
}

// Releases the open file once it is closed and unused. Several threads may get here, because a use
// may begin after the close; kReleased lets only the first one through.
void File::release() const {
    if ((uses_.fetch_or(kReleased, std::memory_order_acq_rel) & kReleased) == 0) open_.reset();
}

Result<File> File::open(const std::string& path, const Device& device, const FileOptions& options) {
    FileOptions wanted = options;
    if (Status status = fill_from_environment(&wanted); !status.ok()) return status;
    auto opened = file::OpenFile::open(path, device, wanted);
    if (!opened.ok()) return opened.status();
    return File(std::move(opened.value()));
}

Result<File> File::adopt(int descriptor, const Device& device, const FileOptions& options) {
    FileOptions wanted = options;
    if (Status status = fill_from_environment(&wanted); !status.ok()) return status;
    auto opened = file::OpenFile::adopt(descriptor, device, wanted);
    if (!opened.ok()) return opened.status();
    return File(std::move(opened.value()));
}

Result<uint64_t> File::read(void* to, uint64_t size, uint64_t offset, Report* report) const {
    const Use use(*this);
    if (!use) return kNotOpen;
    return use->read(to, size, offset, use->options().reading, report);
}

Result<uint64_t> File::read(void* to, uint64_t size, uint64_t offset, const ReadOptions& options,
                            Report* report) const {
    const Use use(*this);
    if (!use) return kNotOpen;
    return use->read(to, size, offset, options, report);
}

Result<uint64_t> File::readv(std::span<const ReadPiece> pieces, const ReadOptions& options,
                             Report* report) const {
    const Use use(*this);
    if (!use) return kNotOpen;
    return use->readv(pieces, options, report);
}

Result<Future> File::pread(void* to, uint64_t size, uint64_t offset) const {
    const Use use(*this);
    if (!use) return kNotOpen;
    return this->pread(to, size, offset, use->options().reading);
}

Result<Future> File::pread(void* to, uint64_t size, uint64_t offset,
                           const ReadOptions& options) const {
    const ReadPiece piece{to, size, offset};
    return this->preadv({&piece, 1}, options);
}

Result<Future> File::preadv(std::span<const ReadPiece> pieces, const ReadOptions& options) const {
    const Use use(*this);
    if (!use) return kNotOpen;
    auto job = use->start(pieces, options);
    if (!job.ok()) return job.status();
    return Future(std::move(job.value()));
}

Result<uint64_t> File::write(const void* from, uint64_t size, uint64_t offset,
                             Report* report) const {
    const Use use(*this);
    if (!use) return kNotOpen;
    return use->write(from, size, offset, use->options().writing, report);
}

Result<uint64_t> File::write(const void* from, uint64_t size, uint64_t offset,
                             const WriteOptions& options, Report* report) const {
    const Use use(*this);
    if (!use) return kNotOpen;
    return use->write(from, size, offset, options, report);
}

Result<uint64_t> File::writev(std::span<const WritePiece> pieces, const WriteOptions& options,
                              Report* report) const {
    const Use use(*this);
    if (!use) return kNotOpen;
    return use->writev(pieces, options, report);
}

Result<Future> File::pwrite(const void* from, uint64_t size, uint64_t offset) const {
    const Use use(*this);
    if (!use) return kNotOpen;
    return this->pwrite(from, size, offset, use->options().writing);
}

Result<Future> File::pwrite(const void* from, uint64_t size, uint64_t offset,
                            const WriteOptions& options) const {
    const WritePiece piece{from, size, offset};
    return this->pwritev({&piece, 1}, options);
}

Result<Future> File::pwritev(std::span<const WritePiece> pieces,
                             const WriteOptions& options) const {
    const Use use(*this);
    if (!use) return kNotOpen;
    auto job = use->start(pieces, options);
    if (!job.ok()) return job.status();
    return Future(std::move(job.value()));
}

Status File::prefetch(uint64_t offset, uint64_t size) const {
    const Use use(*this);
    return use ? use->prefetch(offset, size) : kNotOpen;
}

Status File::fsync(bool data_only) const {
    const Use use(*this);
    return use ? use->fsync(data_only) : kNotOpen;
}

Status File::truncate(uint64_t size) const {
    const Use use(*this);
    return use ? use->truncate(size) : kNotOpen;
}

Result<uint64_t> File::size() const {
    const Use use(*this);
    if (!use) return kNotOpen;
    return use->size();
}

Result<ResidencyReport> File::residency(const ResidencyOptions& options) const {
    const Use use(*this);
    if (!use) return kNotOpen;
    return use->residency(options);
}

std::string File::path() const {
    const Use use(*this);
    return use ? use->path() : std::string();
}

FileOptions File::options() const {
    const Use use(*this);
    return use ? use->options() : FileOptions();
}

Future::Future(std::shared_ptr<transfer::Job> job)
    : job_(std::move(job)), process_(file::process_number()) {}

// A future from before the fork must not touch its job: a thread of the parent may have held its
// lock, and nothing releases that lock in the child.
bool Future::is_of_parent() const { return process_ != file::process_number(); }

bool Future::done() const { return job_->done(); }

Status Future::wait(std::chrono::nanoseconds limit) const {
    if (job_->done()) return {};
    if (is_of_parent()) return kForked;
    if (job_->wait(limit)) return {};
    return {ETIMEDOUT, "wait", "it is still under way"};
}

Result<uint64_t> Future::result(std::chrono::nanoseconds limit) const {
    if (Status status = wait(limit); !status.ok()) return status;
    return job_->result();
}

bool Future::cancel() const { return !is_of_parent() && job_->cancel(); }
void Future::stop() const {
    if (!is_of_parent()) job_->stop();
}
void Future::on_done(std::function<void()> callback) const {
    if (!is_of_parent()) {
        job_->on_done(std::move(callback));
    } else if (done()) {
        callback();
    }
}
const Report& Future::report() const { return job_->report(); }

}  // namespace penstock
