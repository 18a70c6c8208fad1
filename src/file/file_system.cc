// The public file system: makes its parts from the options, and forwards calls to them.
#include "penstock/file_system.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "file/cost_book.h"
#include "file/launches.h"
#include "file/system.h"
#include "penstock/device/atomic.cuh"

namespace penstock {
namespace file {
namespace {

// The default keeps a disk busy. Workers of a GPU also copy from the page cache into staging, and
// each is limited by one CPU. They get three quarters of the machine's CPUs, up to a limit.
constexpr unsigned kWorkersDefault = 4, kWorkersOfGpuMax = limits::kWorkersMax;

unsigned default_workers(const Device& device) {
    if (device.host_addressable()) return kWorkersDefault;
    return std::clamp(std::thread::hardware_concurrency() * 3 / 4, kWorkersDefault,
                      kWorkersOfGpuMax);
}

// The default of Seed 000: with the missed page it makes 64 KiB.
constexpr uint64_t kPrefetchSizeDefault = 60 << 10;

uint64_t prefetch_size(const FileSystemOptions& options) {
    const uint64_t page = options.page_size;
    if (options.prefetch_size != 0 || page == 0) return options.prefetch_size;
    return (kPrefetchSizeDefault + page - 1) / page * page;
}

}  // namespace

Result<std::shared_ptr<storage::Storage>> open_storage(StorageKind kind,
                                                       const StudyOptions& study) {
    storage::Options wanted;
    wanted.kind = kind == StorageKind::kUring   ? storage::Kind::kUring
                  : kind == StorageKind::kPosix ? storage::Kind::kPosix
                                                : storage::Kind::kAuto;
    if (study.throttle_latency_us != 0 || study.throttle_bandwidth_mbs != 0) {
        wanted.under = wanted.kind;
        wanted.kind = storage::Kind::kThrottle;
        wanted.throttle = {study.throttle_latency_us, study.throttle_bandwidth_mbs};
    }
    return storage::make_storage(wanted);
}

Result<FileSystem> System::create(const Device& device, std::shared_ptr<storage::Storage> storage,
                                  const FileSystemOptions& options) {
    service::Options wanted;
    wanted.page_size = options.page_size;
    wanted.cache_size = options.cache_size != 0 ? options.cache_size : device.free_memory() / 2;
    wanted.helping = options.helping && device.host_addressable();
    wanted.workers = options.workers != 0 ? options.workers : default_workers(device);
    wanted.static_map = options.study.map == RequestMap::kStatic;
    wanted.policy = options.replacement == Replacement::kRings       ? ReplacementPolicy::kRings
                    : options.replacement == Replacement::kGlobalLra ? ReplacementPolicy::kGlobalLra
                                                                     : ReplacementPolicy::kClock;
    wanted.readahead = options.readahead == Readahead::kAuto ||
                       options.readahead == Readahead::kStatic;
    wanted.one_by_one = options.readahead == Readahead::kSeed;
    wanted.learning = options.readahead == Readahead::kAuto;
    wanted.log_events = options.log_events;
    if (options.readahead == Readahead::kStatic) wanted.prefetch_size = prefetch_size(options);
    auto book = std::make_shared<CostBook>(device.port().get(), *storage);
    wanted.costs_of = [book](const storage::File& file) { return book->of(file); };
    auto service = service::Service::create(device.port(), std::move(storage), wanted);
    if (!service.ok()) return service.status();
    return FileSystem(std::shared_ptr<System>(new System(std::move(service.value()))));
}

System::System(std::unique_ptr<service::Service> service) : service_(std::move(service)) {
    hear_launches(*service_);
}

System::~System() {
    stop_hearing(*service_);
    if (service_->abort_cause().empty()) (void)service_->write_back_all();
}

}  // namespace file

namespace {

constexpr std::chrono::seconds kReclaimLimit{10};
constexpr std::chrono::microseconds kDiscardingPeriod{100};

FileStatistics describe(const FileTotals& totals) {
    const FileCounts& counts = totals.counts;
    // Kernels run while the counters are read one after another, so a difference must be kept from
    // becoming negative.
    const auto less = [](uint64_t all, uint64_t part) { return all > part ? all - part : 0; };
    FileStatistics result;
    result.pages = counts.pages;
    result.misses = less(counts.misses, totals.learned);
    result.hits = less(counts.pages, result.misses + counts.used);
    result.window_late = counts.late;
    result.window_hits = less(counts.used, counts.late);
    result.prefetched = counts.prefetched;
    result.wasted = counts.wasted;
    result.advised = totals.advised;
    result.learned = totals.learned;
    result.stalled_ns = counts.stalled_ns;
    return result;
}

ReadaheadMemory memory_of(const service::Service& service) {
    const page_cache::Layout& layout = service.layout();
    ReadaheadMemory result;
    result.tables_size = layout.places_size;
    if (layout.readahead.enabled == 0) return result;
    result.windows_size_max = layout.readahead.frames_max << layout.page_shift;
    result.windows_size = service.window_frames() << layout.page_shift;
    return result;
}

}  // namespace

FileSystem::FileSystem(std::shared_ptr<file::System> system) : system_(std::move(system)) {}
FileSystem::~FileSystem() = default;
FileSystem::FileSystem(FileSystem&&) noexcept = default;
FileSystem& FileSystem::operator=(FileSystem&&) noexcept = default;

Result<FileSystem> FileSystem::create(const Device& device, const FileSystemOptions& options) {
    auto storage = file::open_storage(options.storage, options.study);
    if (!storage.ok()) return storage.status();
    return file::System::create(device, std::move(storage.value()), options);
}

static_assert(kOpenReadOnly == O_RDONLY && kOpenWriteOnly == O_WRONLY && kOpenReadWrite == O_RDWR &&
              kOpenAccess == O_ACCMODE && kOpenCreate == O_CREAT && kOpenExclusive == O_EXCL &&
              kOpenTruncate == O_TRUNC && kOpenAppend == O_APPEND);

Result<Descriptor> FileSystem::open(const std::string& path, int flags) {
    service::Service& service = system_->service();
    const auto limit = std::chrono::steady_clock::now() +
                       std::chrono::nanoseconds(limits::kDiscardingNs);
    for (;;) {
        auto opened = service.files().open(path, flags, Opener::kHost);
        const bool again = !opened.ok() && opened.status().error_number() == EAGAIN;
        if (!again || std::chrono::steady_clock::now() > limit) return opened;
        // A kernel is dropping pages of the file that could not be written.
        std::this_thread::sleep_for(kDiscardingPeriod);
    }
}

Status FileSystem::close(Descriptor descriptor) {
    service::Service& service = system_->service();
    Status status = service.close_file(descriptor);
    service.finish_windows();
    return status;
}

Status FileSystem::sync(Descriptor descriptor) {
    service::Service& service = system_->service();
    if (auto size = service.files().size(descriptor); !size.ok()) return size.status();
    const Status written = service.write_back(descriptor);
    const Status synced = service.files().sync(descriptor);
    return written.ok() ? synced : written;
}

Result<uint64_t> FileSystem::size(Descriptor descriptor) const {
    return system_->service().files().size(descriptor);
}

DeviceFileSystem FileSystem::device_handle() const { return {system_->service().device_state()}; }

QueueLoad FileSystem::queue_load() const { return system_->service().observe(); }

std::string FileSystem::storage() const { return system_->service().storage().description(); }

FileSystemStatistics FileSystem::statistics() const {
    service::Service& service = system_->service();
    service::Counters counters;
    service.add_counters(counters);
    FileSystemStatistics result;
    result.requests = counters.requests.load();
    result.demanded_pages = counters.demanded.load();
    result.reads = counters.reads.load();
    result.bytes_read = counters.bytes.load();
    result.control_calls = counters.calls.load();
    result.storage_time_ns = counters.storage_ns.load();
    result.serving_time_ns = counters.serving_ns.load();
    result.failed_pages = counters.failed_pages.load();
    result.writes = counters.writes.load();
    result.bytes_written = counters.bytes_written.load();
    result.failed_writes = counters.failed_writes.load();
    const FileTotals totals = service.counts();
    result.pages = describe(totals);
    result.cache_size = service.layout().frames_size;
    result.readahead = memory_of(service);
    result.open_descriptors = service.files().open_count();
    if (service.device().properties().host_addressable) {
        result.views = views_held(
            device::DeviceWords::load(service.host_state()->held_pins, site::kRelaxed));
    }
    result.workers = service.worker_count();
    return result;
}

Result<FileStatistics> FileSystem::file_statistics(Descriptor descriptor) const {
    service::Service& service = system_->service();
    if (auto size = service.files().size(descriptor); !size.ok()) return size.status();
    return describe(service.counts_of(descriptor_slot(descriptor)));
}

ServiceLog FileSystem::take_log() {
    service::Log::Contents taken = system_->service().take_log();
    ServiceLog result;
    result.events = std::move(taken.events);
    result.files = std::move(taken.files);
    result.lost = taken.lost;
    for (const service::Log::Sample& sample : taken.samples)
        result.samples.push_back({sample.at_ns, describe(sample.totals)});
    for (const service::Log::FileSample& sample : taken.file_samples)
        result.file_samples.push_back({sample.at_ns, sample.file, describe(sample.totals)});
    return result;
}

Result<Leftovers> FileSystem::reclaim() {
    service::Service& service = system_->service();
    if (service.device().kernels_in_flight())
        return Status{EBUSY, "reclaim", "a kernel is running"};
    // Requests of abandoned reads are served first. Otherwise the ring could be too full for the
    // requests of later reads.
    if (Status status = service.serve_all(kReclaimLimit); !status.ok()) return status;
    Leftovers result;
    result.write_error = service.write_back_all().error_number();
    result.descriptors = service.files().close_kernel_files();
    const auto held = service.drop_held();
    if (!held.ok()) return held.status();
    result.views = held.value().views;
    result.reads = held.value().calls;
    return result;
}

std::string FileSystem::abort_cause() const { return system_->service().abort_cause(); }

void FileSystem::abort(Status cause) {
    system_->service().abort(cause.error_number(), cause.message());
}

}  // namespace penstock
