#include "file/open_file.h"

#include <fcntl.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>

#include "backend/backend.h"

namespace penstock::file {
namespace {

constexpr uint64_t kOffsetMax = INT64_MAX;
constexpr Status kForked{ECHILD, "read",
                         "the file was opened before a fork: open it again in this process"};

// Counts up in every child of a fork: threads and rings of the parent do not serve it.
std::atomic<uint64_t> forks{0};

unsigned thread_count(const FileOptions& options) {
    if (options.threads != 0) return options.threads;
    if (const char* wish = std::getenv("PENSTOCK_THREADS"); wish != nullptr) {
        unsigned count = 0;
        const std::string_view text(wish);
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
        if (error == std::errc() && end == text.data() + text.size() && count > 0) return count;
    }
    return std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
}

bool wants_direct(const ReadOptions& options) {
    return options.route.has_value() ? options.route != Route::kCached
                                     : options.cache == CachePolicy::kBypass;
}

RouteReason small_reason(const ReadOptions& options) {
    if (options.route.has_value()) return RouteReason::kAsked;
    return options.cache == CachePolicy::kKeep ? RouteReason::kKeep : RouteReason::kSmall;
}

Report report_small(uint64_t asked, uint64_t offset, const storage::Completion& completion,
                    const ReadOptions& options) {
    Report report;
    report.bytes_asked = asked;
    report.bytes = completion.bytes;
    report.transfers = 1;
    report.route_bytes[static_cast<size_t>(Route::kCached)] = completion.bytes;
    report.reason_bytes[static_cast<size_t>(small_reason(options))] = completion.bytes;
    report.residency_bytes[static_cast<size_t>(Residency::kUnknown)] = completion.bytes;
    report.error_number = completion.error;
    if (completion.error != 0) report.error_offset = offset + completion.bytes;
    return report;
}

}  // namespace

Result<std::shared_ptr<OpenFile::Service>> OpenFile::make_service(
    const Device& device, const FileOptions& options, std::shared_ptr<storage::Storage> storage) {
    transfer::Engine::Options wanted;
    wanted.threads = thread_count(options);
    auto engine = transfer::Engine::create(storage, device.port(), wanted);
    if (!engine.ok()) return engine.status();
    auto service = std::make_shared<Service>();
    service->storage = std::move(storage);
    service->engine = std::move(engine.value());
    return service;
}

// One for each device and set of options that files are open with.
Result<std::shared_ptr<OpenFile::Service>> OpenFile::shared_service(const Device& device,
                                                                    const FileOptions& options) {
    using Key = std::tuple<const backend::Device*, StorageKind, double, double, unsigned>;
    struct Registry {
        std::mutex mutex;
        std::map<Key, std::weak_ptr<Service>> services;
    };
    // Never destroyed: files may be open when the program ends. A child of a fork begins anew,
    // since another thread may have held the lock.
    static std::atomic<Registry*> registry{nullptr};
    static const bool watched = [] {
        registry.store(new Registry);
        pthread_atfork(nullptr, nullptr, [] {
            forks.fetch_add(1, std::memory_order_relaxed);
            registry.store(new Registry);
        });
        return true;
    }();
    (void)watched;
    Registry& all = *registry.load();
    const Key key{device.port().get(), options.storage, options.throttle_latency_us,
                  options.throttle_bandwidth_mbs, thread_count(options)};
    const std::lock_guard lock(all.mutex);
    if (auto service = all.services[key].lock(); service != nullptr) return service;
    FileSystemOptions named;
    named.storage = options.storage;
    named.throttle_latency_us = options.throttle_latency_us;
    named.throttle_bandwidth_mbs = options.throttle_bandwidth_mbs;
    auto storage = open_storage(named);
    if (!storage.ok()) return storage.status();
    auto service = make_service(device, options, std::move(storage.value()));
    if (service.ok()) all.services[key] = service.value();
    return service;
}

Result<std::shared_ptr<OpenFile>> OpenFile::open(const std::string& path, const Device& device,
                                                 const FileOptions& options) {
    auto service = shared_service(device, options);
    if (!service.ok()) return service.status();
    auto file = service.value()->storage->open(path, O_RDONLY);
    if (!file.ok()) return file.status();
    return std::shared_ptr<OpenFile>(
        new OpenFile(path, device, options, std::move(service.value()), std::move(file.value())));
}

Result<std::shared_ptr<OpenFile>> OpenFile::open(const std::string& path, const Device& device,
                                                 const FileOptions& options,
                                                 std::shared_ptr<storage::Storage> storage) {
    auto file = storage->open(path, O_RDONLY);
    if (!file.ok()) return file.status();
    auto service = make_service(device, options, std::move(storage));
    if (!service.ok()) return service.status();
    return std::shared_ptr<OpenFile>(
        new OpenFile(path, device, options, std::move(service.value()), std::move(file.value())));
}

OpenFile::OpenFile(std::string path, const Device& device, const FileOptions& options,
                   std::shared_ptr<Service> service, std::shared_ptr<storage::File> file)
    : path_(std::move(path)),
      device_(device),
      options_(options),
      service_(std::move(service)),
      source_(std::make_shared<transfer::Source>(std::move(file))),
      process_(forks.load(std::memory_order_relaxed)) {}

Result<uint64_t> OpenFile::size() const {
    storage::Identity now;
    if (Status status = source_->file->stat(&now); !status.ok()) return status;
    return now.size;
}

Status OpenFile::check(std::span<const ReadPiece> pieces) const {
    if (process_ != forks.load(std::memory_order_relaxed)) return kForked;
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
                                                          const ReadOptions& options) {
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
    return std::make_shared<transfer::Job>(source_, std::move(wanted), device_memory, options,
                                           service_->engine->window_size(sum), shared_from_this());
}

Result<uint64_t> OpenFile::read(void* to, uint64_t size, uint64_t offset,
                                const ReadOptions& options, Report* report) {
    const ReadPiece piece{to, size, offset};
    const bool plain = size < transfer::kPlanSizeMin && !wants_direct(options) &&
                       (device_.port() == nullptr || device_.port()->host_can_address(to));
    if (plain && size > 0) {
        if (Status status = check({&piece, 1}); !status.ok()) return status;
        const iovec place{to, size};
        storage::Completion completion;
        if (service_->engine->read_small(*source_, offset, {&place, 1},
                                         options.cache == CachePolicy::kDrop, &completion)) {
            if (report != nullptr) *report = report_small(size, offset, completion, options);
            if (completion.error == 0) return completion.bytes;
            return Status{completion.error, "read", "the bytes could not be read"};
        }
    }
    return readv({&piece, 1}, options, report);
}

Result<uint64_t> OpenFile::readv(std::span<const ReadPiece> pieces, const ReadOptions& options,
                                 Report* report) {
    auto job = make_job(pieces, options);
    if (!job.ok()) return job.status();
    service_->engine->run(job.value());
    if (report != nullptr) *report = job.value()->report();
    return job.value()->result();
}

Result<std::shared_ptr<transfer::Job>> OpenFile::start(std::span<const ReadPiece> pieces,
                                                       const ReadOptions& options) {
    auto job = make_job(pieces, options);
    if (job.ok()) service_->engine->start(job.value());
    return job;
}

}  // namespace penstock::file
