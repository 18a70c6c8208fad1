#include "file/open_file.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "backend/backend.h"
#include "base/clock.h"
#include "file/explain.h"
#include "file/host_readahead.h"
#include "file/later_start.h"
#include "planner/route_policy.h"

namespace penstock::file {
namespace {

constexpr uint64_t kOffsetMax = INT64_MAX;
constexpr uint64_t kLookSizeMin = 4 << 20;  // a smaller read ends before the question pays off
constexpr Status kForked{ECHILD, "file",
                         "the file was opened before a fork: open it again in this process"};

// A transfer only reads its sources, so casting away const is safe.
std::vector<transfer::Piece> pieces_of(std::span<const ReadPiece> pieces) {
    std::vector<transfer::Piece> all;
    all.reserve(pieces.size());
    for (const ReadPiece& piece : pieces) all.push_back({piece.to, piece.size, piece.offset});
    return all;
}
std::vector<transfer::Piece> pieces_of(std::span<const WritePiece> pieces) {
    std::vector<transfer::Piece> all;
    all.reserve(pieces.size());
    for (const WritePiece& piece : pieces)
        all.push_back({const_cast<void*>(piece.from), piece.size, piece.offset});
    return all;
}

}  // namespace

Result<std::shared_ptr<OpenFile>> OpenFile::open(const std::string& path, const Device& device,
                                                 const FileOptions& options) {
    auto service = FileService::shared(device, options);
    if (!service.ok()) return service.status();
    auto file = service.value()->storage->open(path, options.open_flags);
    if (!file.ok()) return file.status();
    return share(path, device, options, std::move(service.value()), file.value());
}

Result<std::shared_ptr<OpenFile>> OpenFile::adopt(int descriptor, const Device& device,
                                                  const FileOptions& options) {
    auto service = FileService::shared(device, options);
    if (!service.ok()) return service.status();
    auto file = service.value()->storage->adopt(descriptor);
    if (!file.ok()) return file.status();
    FileOptions taken = options;
    const storage::Rights rights = file.value()->rights();
    taken.open_flags = (!rights.write ? O_RDONLY
                        : rights.read ? O_RDWR
                                      : O_WRONLY) |
                       (rights.append ? O_APPEND : 0);
    return share("/proc/self/fd/" + std::to_string(descriptor), device, taken,
                 std::move(service.value()), file.value());
}

Result<std::shared_ptr<OpenFile>> OpenFile::open(const std::string& path, const Device& device,
                                                 const FileOptions& options,
                                                 std::shared_ptr<storage::Storage> storage) {
    auto file = storage->open(path, options.open_flags);
    if (!file.ok()) return file.status();
    auto service = FileService::make(device, options, std::move(storage));
    if (!service.ok()) return service.status();
    return share(path, device, options, std::move(service.value()), file.value());
}

// A finished read may hold the last reference, on an engine thread. The engine may be destroyed
// with the file, or with the device that the file owns. So the deleter destroys the file then.
Result<std::shared_ptr<OpenFile>> OpenFile::share(const std::string& path, const Device& device,
                                                  const FileOptions& options,
                                                  std::shared_ptr<FileService> service,
                                                  const std::shared_ptr<storage::File>& file) {
    DeferredDeleter* deleter = nullptr;
    if (!service->lasting) {
        const auto running = DeferredDeleter::of_process();
        if (!running.ok()) return running.status();
        deleter = running.value();
    }
    return std::shared_ptr<OpenFile>(
        new OpenFile(path, device, options, std::move(service), file), [deleter](OpenFile* last) {
            std::unique_ptr<OpenFile> owned(last);
            if (deleter != nullptr && transfer::Engine::on_own_thread())
                deleter->drop(std::move(owned));
        });
}

OpenFile::OpenFile(std::string path, const Device& device, const FileOptions& options,
                   std::shared_ptr<FileService> service, const std::shared_ptr<storage::File>& file)
    : path_(std::move(path)),
      device_(device),
      options_(options),
      explains_(options.explain.value_or(false)),
      service_(std::move(service)),
      source_(std::make_shared<transfer::Source>(file, service_->costs->of(*file))),
      process_(process_number()),
      number_(next_file_number()),
      append_order_(file->rights().append ? std::make_shared<AppendOrder>() : nullptr),
      host_memory_(device.port() == nullptr || device.port()->properties().host_addressable) {}

bool OpenFile::is_device_memory(const void* address) const {
    return !host_memory_ && !device_.port()->host_can_address(address);
}

Result<uint64_t> OpenFile::size() const {
    storage::Identity now;
    if (Status status = source_->file->stat(&now); !status.ok()) return status;
    return now.size;
}

Status OpenFile::check(std::span<const transfer::Piece> pieces, bool write) const {
    if (process_ != process_number()) return kForked;
    const char* const call = write ? "write" : "read";
    const int access = options_.open_flags & O_ACCMODE;
    if (write && access == O_RDONLY) return {EBADF, call, "the file is open for reading only"};
    if (!write && access == O_WRONLY) return {EBADF, call, "the file is open for writing only"};
    uint64_t sum = 0;
    for (const transfer::Piece& piece : pieces) {
        if (piece.offset == kAtEnd)
            return {EINVAL, call, "only writes to a file that appends have the offset kAtEnd"};
        if (piece.offset > kOffsetMax || piece.size > kOffsetMax - piece.offset ||
            piece.size > kOffsetMax - sum) {
            return {EINVAL, call, "the range ends beyond 2^63 - 1"};
        }
        if (piece.to == nullptr && piece.size != 0) return {EFAULT, call, "no memory"};
        sum += piece.size;
    }
    return {};
}

// Lets the offsets of an append count from where it will go. Other writes keep theirs.
Status OpenFile::place_at_end(Pieces* pieces) const {
    if (append_order_ == nullptr) return {};
    uint64_t sum = 0;
    for (transfer::Piece& piece : *pieces) {
        if (piece.offset != kAtEnd)
            return {EINVAL, "write", "the file appends: give no offset (kAtEnd)"};
        piece.offset = sum;
        sum = piece.size > kOffsetMax - sum ? kOffsetMax : sum + piece.size;
    }
    return {};
}

Result<std::shared_ptr<transfer::Job>> OpenFile::make_job(Pieces pieces, bool write,
                                                          const ReadOptions& options,
                                                          bool with_caller) {
    if (Status status = check(pieces, write); !status.ok()) return status;
    uint64_t sum = 0;
    bool device_memory = false;
    for (const transfer::Piece& piece : pieces) {
        const bool there = is_device_memory(piece.to);
        if (&piece != pieces.data() && device_memory != there) {
            return Status{EINVAL, write ? "write" : "read",
                          "pieces in host memory and in device memory do not mix"};
        }
        device_memory = there;
        sum += piece.size;
    }
    // Long cached parts go to the device at once, and each window decides that separately. The size
    // of the windows depends on hot(), so the OS page cache is looked at first.
    if (!write && device_memory && sum >= kLookSizeMin && !source_->hot())
        source_->look({pieces.front().offset, pieces.front().size});
    const uint64_t window_size = service_->engine->window_size(sum, write || source_->hot(),
                                                               with_caller, device_memory);
    return std::make_shared<transfer::Job>(source_, std::move(pieces), write, device_memory,
                                           options, window_size, shared_from_this());
}

Status OpenFile::find_queued_work(const ReadOptions& options,
                                  std::shared_ptr<backend::QueuedWork>* out) const {
    if (options.stream == ReadOptions::kNoStream) return {};
    std::array<uintptr_t, 2> streams{options.stream.value_or(0), options.owner_stream};
    const bool both = !options.stream.has_value() && options.owner_stream > 1;
    return device_.port()->queued_work(std::span(streams).first(both ? 2 : 1), out);
}

Result<uint64_t> OpenFile::move(const transfer::Piece& piece, bool write,
                                const ReadOptions& options, Report* report) {
    if (Status status = check({&piece, 1}, write); !status.ok()) return status;
    const planner::RoutePolicy policy = source_->policy(options);
    const bool small = piece.size > 0 && policy.is_small(piece.size);
    if (small && !write && options_.read_ahead && piece.size <= kHostReadaheadSizeMax &&
        policy.buffered() != planner::Buffered::kNever)
        read_ahead_of(*source_, number_, {piece.offset, piece.size});
    const bool append = write && append_order_ != nullptr;
    if (small && !append && !is_device_memory(piece.to)) {
        // The clock is read only for a report, because its cost shows in a small read.
        uint64_t called_ns = 0, begun_ns = 0;
        if (report != nullptr) called_ns = base::monotonic_ns();
        transfer::SmallOutcome outcome;
        if (service_->engine->move_small(*source_, piece, write, options, &outcome,
                                         report != nullptr ? &begun_ns : nullptr)) {
            if (report != nullptr) {
                *report = {};
                report->bytes_asked = piece.size;
                report->offset = piece.offset;
                report->queue_ns = begun_ns - called_ns;
                report->read_ns = base::monotonic_ns() - begun_ns;
                add_to(report, piece.offset, outcome);
            }
            const int error = outcome.completion.error;
            if (error == 0) return outcome.completion.bytes;
            return write ? Status{error, "write", "the bytes could not be written"}
                         : Status{error, "read", "the bytes could not be read"};
        }
    }
    return move_all({piece}, write, options, report);
}

Result<uint64_t> OpenFile::move_all(Pieces pieces, bool write, const ReadOptions& options,
                                    Report* report) {
    auto job = make_job(std::move(pieces), write, options, true);
    if (!job.ok()) return job.status();
    if (job.value()->device_memory()) {
        std::shared_ptr<backend::QueuedWork> before;
        if (Status s = find_queued_work(options, &before); !s.ok()) return s;
        if (before != nullptr) LaterStart::wait(*before);
    }
    const auto start = [file = shared_from_this(), later = job.value()] {
        file->service_->engine->start(later);
    };
    if (!job.value()->append() || append_order_->add(job.value(), start)) {
        service_->engine->run(job.value());
    } else {
        while (!job.value()->wait(std::chrono::hours(1))) {
        }
    }
    if (report != nullptr) *report = job.value()->report();
    return job.value()->result();
}

Result<std::shared_ptr<transfer::Job>> OpenFile::start_job(Pieces pieces, bool write,
                                                           const ReadOptions& options) {
    if (!explains_) return begin_job(std::move(pieces), write, options);
    const char* const operation = pieces.size() == 1 ? write ? "pwrite" : "pread"
                                  : write            ? "pwritev"
                                                     : "preadv";
    auto job = begin_job(std::move(pieces), write, options);
    if (job.ok()) {
        job.value()->on_done([path = path_, operation, own = job.value()] {
            print_explanation(path, operation, own->report());
        });
    }
    return job;
}

Result<std::shared_ptr<transfer::Job>> OpenFile::begin_job(Pieces pieces, bool write,
                                                           const ReadOptions& options) {
    auto job = make_job(std::move(pieces), write, options, false);
    if (!job.ok()) return job;
    std::shared_ptr<backend::QueuedWork> before;
    if (job.value()->device_memory()) {
        if (Status s = find_queued_work(options, &before); !s.ok()) return s;
    }
    LaterStart* starter = nullptr;
    if (before != nullptr) {
        const auto running = LaterStart::of_process();
        if (!running.ok()) return running.status();
        starter = running.value();
    }
    const auto start = [file = shared_from_this(), later = job.value(), before, starter] {
        if (before == nullptr) return file->service_->engine->start(later);
        starter->add(before, [file, later] { file->service_->engine->start(later); });
    };
    if (!job.value()->append() || append_order_->add(job.value(), start)) start();
    return job;
}

template <class Move>
Result<uint64_t> OpenFile::explained(const char* operation, Report* report, const Move& move) {
    if (!explains_) return move(report);
    Report own;
    if (report == nullptr) report = &own;
    *report = {};
    const Result<uint64_t> result = move(report);
    if (result.ok() || report->error_number != 0) print_explanation(path_, operation, *report);
    return result;
}

Result<uint64_t> OpenFile::read(void* to, uint64_t size, uint64_t offset,
                                const ReadOptions& options, Report* report) {
    // Not in explained(): a small read takes a microsecond.
    if (!explains_) return move({to, size, offset}, false, options, report);
    return explained("read", report, [&](Report* told) {
        return move({to, size, offset}, false, options, told);
    });
}

Result<uint64_t> OpenFile::readv(std::span<const ReadPiece> pieces, const ReadOptions& options,
                                 Report* report) {
    Pieces all = pieces_of(pieces);
    return explained("readv", report,
                     [&](Report* told) { return move_all(std::move(all), false, options, told); });
}

Result<std::shared_ptr<transfer::Job>> OpenFile::start(std::span<const ReadPiece> pieces,
                                                       const ReadOptions& options) {
    return start_job(pieces_of(pieces), false, options);
}

Result<uint64_t> OpenFile::write(const void* from, uint64_t size, uint64_t offset,
                                 const WriteOptions& options, Report* report) {
    Pieces all{{const_cast<void*>(from), size, offset}};
    if (Status status = place_at_end(&all); !status.ok()) return status;
    return explained("write", report,
                     [&](Report* told) { return move(all.front(), true, options, told); });
}

Result<uint64_t> OpenFile::writev(std::span<const WritePiece> pieces, const WriteOptions& options,
                                  Report* report) {
    Pieces all = pieces_of(pieces);
    if (Status status = place_at_end(&all); !status.ok()) return status;
    return explained("writev", report,
                     [&](Report* told) { return move_all(std::move(all), true, options, told); });
}

Result<std::shared_ptr<transfer::Job>> OpenFile::start(std::span<const WritePiece> pieces,
                                                       const WriteOptions& options) {
    Pieces all = pieces_of(pieces);
    if (Status status = place_at_end(&all); !status.ok()) return status;
    return start_job(std::move(all), true, options);
}

Status OpenFile::prefetch(uint64_t offset, uint64_t size) {
    if (Status status = check({}, false); !status.ok()) return status;
    const auto end = this->size();
    if (!end.ok()) return end.status();
    while (offset < end.value() && size > 0) {
        const uint64_t part = std::min({size, end.value() - offset, kAnnouncedSizeMax});
        source_->file->announce(offset, part);
        offset += part;
        size -= part;
    }
    return {};
}

Status OpenFile::fsync(bool data_only) {
    if (process_ != process_number()) return kForked;
    return source_->file->sync(data_only);
}

Status OpenFile::truncate(uint64_t size) {
    if (Status status = check({}, true); !status.ok()) return status;
    if (size > kOffsetMax) return {EINVAL, "truncate", "the size is beyond 2^63 - 1"};
    const Status status = source_->file->truncate(size);
    if (status.ok()) source_->resized(size);
    return status;
}

}  // namespace penstock::file
