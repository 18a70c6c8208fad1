#include "file/open_file.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "backend/backend.h"
#include "base/clock.h"

namespace penstock::file {
namespace {

constexpr uint64_t kOffsetMax = INT64_MAX;
constexpr uint64_t kLookSizeMin = 4 << 20;  // less is read before a look pays
constexpr Status kForked{ECHILD, "read",
                         "the file was opened before a fork: open it again in this process"};

}  // namespace

Result<std::shared_ptr<OpenFile>> OpenFile::open(const std::string& path, const Device& device,
                                                 const FileOptions& options) {
    auto service = ReadService::shared(device, options);
    if (!service.ok()) return service.status();
    auto file = service.value()->storage->open(path, O_RDONLY);
    if (!file.ok()) return file.status();
    return share(path, device, options, std::move(service.value()), file.value());
}

Result<std::shared_ptr<OpenFile>> OpenFile::open(const std::string& path, const Device& device,
                                                 const FileOptions& options,
                                                 std::shared_ptr<storage::Storage> storage) {
    auto file = storage->open(path, O_RDONLY);
    if (!file.ok()) return file.status();
    auto service = ReadService::make(device, options, std::move(storage));
    if (!service.ok()) return service.status();
    return share(path, device, options, std::move(service.value()), file.value());
}

// The last reference may be that of a read that ends, on a thread of an engine that goes with the
// file, or with a device that goes with it.
Result<std::shared_ptr<OpenFile>> OpenFile::share(const std::string& path, const Device& device,
                                                  const FileOptions& options,
                                                  std::shared_ptr<ReadService> service,
                                                  const std::shared_ptr<storage::File>& file) {
    Reaper* reaper = nullptr;
    if (!service->lasting) {
        const auto running = Reaper::of_process();
        if (!running.ok()) return running.status();
        reaper = running.value();
    }
    return std::shared_ptr<OpenFile>(new OpenFile(path, device, options, std::move(service), file),
                                     [reaper](OpenFile* last) {
                                         std::unique_ptr<OpenFile> owned(last);
                                         if (reaper != nullptr && transfer::Engine::on_own_thread())
                                             reaper->drop(std::move(owned));
                                     });
}

OpenFile::OpenFile(std::string path, const Device& device, const FileOptions& options,
                   std::shared_ptr<ReadService> service, const std::shared_ptr<storage::File>& file)
    : path_(std::move(path)),
      device_(device),
      options_(options),
      service_(std::move(service)),
      source_(std::make_shared<transfer::Source>(file, service_->costs->of(*file))),
      process_(process_number()) {}

Result<uint64_t> OpenFile::size() const {
    storage::Identity now;
    if (Status status = source_->file->stat(&now); !status.ok()) return status;
    return now.size;
}

Status OpenFile::check(std::span<const ReadPiece> pieces) const {
    if (process_ != process_number()) return kForked;
    uint64_t sum = 0;
    for (const ReadPiece& piece : pieces) {
        if (piece.offset > kOffsetMax || piece.size > kOffsetMax - piece.offset ||
            piece.size > kOffsetMax - sum) {
            return {EINVAL, "read", "the range ends beyond 2^63 - 1"};
        }
        if (piece.to == nullptr && piece.size != 0) return {EFAULT, "read", "no memory"};
        sum += piece.size;
    }
    return {};
}

Result<std::shared_ptr<transfer::Job>> OpenFile::make_job(std::span<const ReadPiece> pieces,
                                                          const ReadOptions& options,
                                                          bool with_caller) {
    if (Status status = check(pieces); !status.ok()) return status;
    std::vector<transfer::Piece> wanted;
    wanted.reserve(pieces.size());
    uint64_t sum = 0;
    bool device_memory = false;
    for (const ReadPiece& piece : pieces) {
        const bool here = device_.port() == nullptr || device_.port()->host_can_address(piece.to);
        if (!wanted.empty() && device_memory == here) {
            return Status{EINVAL, "read", "pieces in host memory and in device memory do not mix"};
        }
        device_memory = !here;
        wanted.push_back({piece.to, piece.size, piece.offset});
        sum += piece.size;
    }
    // Long parts of what is hot go to the device at once, which is decided part by part.
    if (device_memory && sum >= kLookSizeMin && !source_->hot())
        source_->look({wanted.front().offset, wanted.front().size});
    const uint64_t window_size = service_->engine->window_size(sum, source_->hot(), with_caller,
                                                               device_memory);
    return std::make_shared<transfer::Job>(source_, std::move(wanted), device_memory, options,
                                           window_size, shared_from_this());
}

Result<uint64_t> OpenFile::read(void* to, uint64_t size, uint64_t offset,
                                const ReadOptions& options, Report* report) {
    const ReadPiece piece{to, size, offset};
    const bool small = transfer::is_small(size, options) &&
                       (device_.port() == nullptr || device_.port()->host_can_address(to));
    if (small && size > 0) {
        if (Status status = check({&piece, 1}); !status.ok()) return status;
        // The clock is read only for who asks: small reads are counted in nanoseconds.
        uint64_t called_ns = 0, begun_ns = 0;
        if (report != nullptr) called_ns = base::monotonic_ns();
        transfer::SmallOutcome outcome;
        if (service_->engine->read_small(*source_, offset, {to, size}, options, &outcome,
                                         report != nullptr ? &begun_ns : nullptr)) {
            if (report != nullptr) {
                *report = {};
                report->bytes_asked = size;
                report->queue_ns = begun_ns - called_ns;
                report->read_ns = base::monotonic_ns() - begun_ns;
                add_to(report, offset, outcome);
            }
            if (outcome.completion.error == 0) return outcome.completion.bytes;
            return Status{outcome.completion.error, "read", "the bytes could not be read"};
        }
    }
    return readv({&piece, 1}, options, report);
}

Result<uint64_t> OpenFile::readv(std::span<const ReadPiece> pieces, const ReadOptions& options,
                                 Report* report) {
    auto job = make_job(pieces, options, true);
    if (!job.ok()) return job.status();
    service_->engine->run(job.value());
    if (report != nullptr) *report = job.value()->report();
    return job.value()->result();
}

Result<std::shared_ptr<transfer::Job>> OpenFile::start(std::span<const ReadPiece> pieces,
                                                       const ReadOptions& options) {
    auto job = make_job(pieces, options, false);
    if (job.ok()) service_->engine->start(job.value());
    return job;
}

}  // namespace penstock::file
