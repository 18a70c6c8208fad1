// The public file system: options to parts, and questions passed on.
#include "penstock/file_system.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "file/cost_book.h"
#include "file/system.h"
#include "page_cache/invalidation.h"
#include "penstock/device/atomic.cuh"

namespace penstock {
namespace file {
namespace {

constexpr unsigned kWorkersDefault = 4;

}  // namespace

Result<std::shared_ptr<storage::Storage>> open_storage(const FileSystemOptions& options) {
    storage::Options wanted;
    wanted.kind = options.storage == StorageKind::kUring   ? storage::Kind::kUring
                  : options.storage == StorageKind::kPosix ? storage::Kind::kPosix
                                                           : storage::Kind::kAuto;
    if (options.throttle_latency_us != 0 || options.throttle_bandwidth_mbs != 0) {
        wanted.under = wanted.kind == storage::Kind::kAuto ? storage::Kind::kPosix : wanted.kind;
        wanted.kind = storage::Kind::kThrottle;
        wanted.throttle = {options.throttle_latency_us, options.throttle_bandwidth_mbs};
    }
    return storage::make_storage(wanted);
}

Result<FileSystem> System::create(const Device& device, std::shared_ptr<storage::Storage> storage,
                                  const FileSystemOptions& options) {
    service::Options wanted;
    wanted.page_size = options.page_size;
    wanted.cache_size = options.cache_size != 0 ? options.cache_size : device.free_memory() / 2;
    wanted.helping = options.helping && device.host_addressable();
    wanted.workers = options.workers != 0 ? options.workers : kWorkersDefault;
    wanted.static_map = options.map == RequestMap::kStatic;
    auto book = std::make_shared<CostBook>(device.port().get(), *storage);
    wanted.costs_of = [book](const storage::File& file) { return book->of(file); };
    auto service = service::Service::create(device.port(), std::move(storage), wanted);
    if (!service.ok()) return service.status();
    return FileSystem(std::shared_ptr<System>(new System(std::move(service.value()))));
}

}  // namespace file

FileSystem::FileSystem(std::shared_ptr<file::System> system) : system_(std::move(system)) {}
FileSystem::~FileSystem() = default;
FileSystem::FileSystem(FileSystem&&) noexcept = default;
FileSystem& FileSystem::operator=(FileSystem&&) noexcept = default;

Result<FileSystem> FileSystem::create(const Device& device, const FileSystemOptions& options) {
    auto storage = file::open_storage(options);
    if (!storage.ok()) return storage.status();
    return file::System::create(device, std::move(storage.value()), options);
}

Result<Descriptor> FileSystem::open(const std::string& path) {
    return system_->service().files().open(path, O_RDONLY, service::Opener::kHost);
}

Status FileSystem::close(Descriptor descriptor) {
    return system_->service().files().close(descriptor, service::Opener::kHost);
}

Result<uint64_t> FileSystem::size(Descriptor descriptor) const {
    return system_->service().files().size(descriptor);
}

DeviceFileSystem FileSystem::device_handle() const { return {system_->service().device_state()}; }

QueueLoad FileSystem::queue_load() const { return system_->service().observe(); }

std::string FileSystem::storage() const { return system_->service().storage().description(); }

FileSystemStatistics FileSystem::statistics() const {
    service::Service& service = system_->service();
    const service::Counters& counters = service.counters();
    FileSystemStatistics result;
    result.requests = counters.requests.load();
    result.reads = counters.reads.load();
    result.bytes_read = counters.bytes.load();
    result.control_calls = counters.calls.load();
    result.storage_time_ns = counters.storage_ns.load();
    result.serving_time_ns = counters.serving_ns.load();
    result.failed_pages = counters.failed_pages.load();
    result.open_descriptors = service.files().open_count();
    if (service.device().properties().host_addressable) {
        result.views = device::DeviceWords::load(service.host_state()->view_pins, site::kRelaxed);
    }
    result.workers = service.worker_count();
    return result;
}

Result<Leftovers> FileSystem::reclaim() {
    service::Service& service = system_->service();
    if (service.device().kernels_in_flight())
        return Status{EBUSY, "reclaim", "a kernel is running"};
    Leftovers result;
    result.descriptors = service.files().close_kernel_files();
    if (service.device().properties().host_addressable) {
        FileSystemState& state = *service.host_state();
        result.views = state.view_pins;
        page_cache::drop_pins(state);
    }
    return result;
}

std::string FileSystem::abort_cause() const { return system_->service().abort_cause(); }

void FileSystem::abort(Status cause) {
    system_->service().abort(cause.error_number(), cause.message());
}

}  // namespace penstock
