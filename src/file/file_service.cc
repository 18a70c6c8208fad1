#include "file/file_service.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include "backend/backend.h"
#include "file/environment.h"
#include "file/system.h"
#include "penstock/preemption.h"
#include "preemption/preemption.h"

namespace penstock::file {
namespace {

using Key = std::tuple<const backend::Device*, StorageKind, double, double, unsigned>;

struct Registry {
    std::mutex mutex;
    std::map<Key, std::shared_ptr<FileService>> kept;
    // Services of devices that no with_services() handle watches. The files own them.
    std::map<Key, std::weak_ptr<FileService>> others;
    std::map<const backend::Device*, std::unique_ptr<preemption::Preemption>> preemptions;
    std::map<const backend::Device*, PreemptionOptions> preemption_options;
    std::set<const backend::Device*> watched{nullptr};
    DeferredDeleter* deleter = nullptr;
};

std::atomic<uint64_t> forks{0};

// The registry is never destroyed, because files may be open when the program ends. The child of a
// fork makes a new one, because another thread may have held the lock. It does not touch the
// parent's services.
Registry& registry() {
    static std::atomic<Registry*> current{nullptr};
    static const int watching = [] {
        current.store(new Registry);
        return pthread_atfork(nullptr, nullptr, [] {
            forks.fetch_add(1, std::memory_order_relaxed);
            auto* fresh = new Registry;
            fresh->watched = current.load()->watched;
            current.store(fresh);
        });
    }();
    (void)watching;
    return *current.load();
}

void forget(const backend::Device* device) {
    const auto is_its = [device](const auto& entry) { return std::get<0>(entry.first) == device; };
    std::vector<std::shared_ptr<FileService>> gone;  // its threads end after the lock is released
    std::unique_ptr<preemption::Preemption> preemption;
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    if (const auto found = all.preemptions.find(device); found != all.preemptions.end()) {
        preemption = std::move(found->second);
        all.preemptions.erase(found);
    }
    all.preemption_options.erase(device);
    all.watched.erase(device);
    std::erase_if(all.others, is_its);
    for (const auto& entry : all.kept) {
        if (is_its(entry)) gone.push_back(entry.second);
    }
    std::erase_if(all.kept, is_its);
}

// A device whose last handle was dropped. The destructor removes its services first.
struct Going {
    explicit Going(std::shared_ptr<backend::Device> device) : port(std::move(device)) {}
    ~Going() { forget(port.get()); }
    Going(const Going&) = delete;
    Going& operator=(const Going&) = delete;

    const std::shared_ptr<backend::Device> port;
};

}  // namespace

Result<unsigned> thread_count(const FileOptions& options, const Device& device) {
    constexpr unsigned kMax = transfer::Engine::kThreadsMax;
    static_assert(kMax == 64);
    if (options.threads > kMax) return Status{EINVAL, "threads", "must be from 1 to 64"};
    if (options.threads != 0) return options.threads;
    const std::string_view text = environment("PENSTOCK_THREADS");
    if (text.empty()) {
        static const unsigned cpus = std::thread::hardware_concurrency();  // a file of /sys
        const bool addressable = device.port() == nullptr || device.host_addressable();
        return std::clamp(addressable ? cpus : (3 * cpus + 3) / 4, 1u, 16u);
    }
    unsigned count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error == std::errc() && end == text.data() + text.size() && count >= 1 && count <= kMax)
        return count;
    return Status{EINVAL, "PENSTOCK_THREADS", "is no number from 1 to 64"};
}

Result<preemption::Preemption*> preemption_of(backend::Device* device) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    if (!all.watched.contains(device))  // nothing would end its thread
        return Status{ENOTSUP, "preemption", "the device was not opened with Device::open"};
    auto& made = all.preemptions[device];
    if (made == nullptr) {
        auto result = preemption::Preemption::create(device, all.preemption_options[device]);
        if (!result.ok()) return result.status();
        made = std::move(result.value());
    }
    return made.get();
}

uint64_t process_number() { return forks.load(std::memory_order_relaxed); }

Result<std::shared_ptr<FileService>> FileService::make(const Device& device,
                                                       const FileOptions& options,
                                                       std::shared_ptr<storage::Storage> storage) {
    const auto threads = thread_count(options, device);
    if (!threads.ok()) return threads.status();
    transfer::Engine::Options wanted;
    wanted.threads = threads.value();
    auto engine = transfer::Engine::create(storage, device.port().get(), wanted);
    if (!engine.ok()) return engine.status();
    auto service = std::make_shared<FileService>();
    service->costs = std::make_unique<CostBook>(device.port().get(), *storage);
    service->storage = std::move(storage);
    service->engine = std::move(engine.value());
    return service;
}

Result<std::shared_ptr<FileService>> FileService::shared(const Device& device,
                                                         const FileOptions& options) {
    const auto threads = thread_count(options, device);
    if (!threads.ok()) return threads.status();
    // The check comes before the map lookup: NaN in a key would compare equal to every number.
    if (Status status = storage::check(
            {options.study.throttle_latency_us, options.study.throttle_bandwidth_mbs});
        !status.ok())
        return status;
    const backend::Device* port = device.port().get();
    if (port != nullptr) {  // the code that drops the device may need it and cannot report an error
        if (const auto deleter = DeferredDeleter::of_process(); !deleter.ok())
            return deleter.status();
    }
    Registry& all = registry();
    const Key key{port, options.storage, options.study.throttle_latency_us,
                  options.study.throttle_bandwidth_mbs, threads.value()};
    const std::lock_guard lock(all.mutex);
    if (const auto found = all.kept.find(key); found != all.kept.end()) return found->second;
    if (auto service = all.others[key].lock(); service != nullptr) return service;
    auto storage = open_storage(options.storage, options.study);
    if (!storage.ok()) return storage.status();
    auto service = make(device, options, std::move(storage.value()));
    if (!service.ok()) return service;
    service.value()->lasting = port == nullptr;
    if (all.watched.count(port) != 0) {
        all.kept[key] = service.value();
    } else {
        all.others[key] = service.value();
    }
    return service;
}

Result<DeferredDeleter*> DeferredDeleter::of_process() {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    if (all.deleter != nullptr) return all.deleter;
    auto made = std::make_unique<DeferredDeleter>();
    try {
        std::thread([deleter = made.get()] { deleter->work(); }).detach();
    } catch (const std::system_error&) {
        return Status{EAGAIN, "threads", "no more threads are to be had"};
    }
    all.deleter = made.release();  // never destroyed, like its thread
    return all.deleter;
}

DeferredDeleter* DeferredDeleter::running() {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    return all.deleter;
}

void DeferredDeleter::drop(std::shared_ptr<void> last) {
    const std::lock_guard lock(mutex_);
    dropped_.push_back(std::move(last));
    changed_.notify_one();
}

void DeferredDeleter::work() {
    std::vector<std::shared_ptr<void>> now;
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return !dropped_.empty(); });
        now.swap(dropped_);
        lock.unlock();
        now.clear();
        lock.lock();
    }
}

std::shared_ptr<backend::Device> with_services(std::shared_ptr<backend::Device> device) {
    Registry& all = registry();
    backend::Device* port = device.get();
    {
        const std::lock_guard lock(all.mutex);
        all.watched.insert(port);
    }
    return {port, [held = std::move(device)](backend::Device* going) mutable {
                // A read's callback may have dropped the handle on an engine thread. Without a
                // deleter the device has no services.
                DeferredDeleter* const deleter = transfer::Engine::on_own_thread()
                                                     ? DeferredDeleter::running()
                                                     : nullptr;
                if (deleter != nullptr)
                    return deleter->drop(std::make_shared<Going>(std::move(held)));
                forget(going);
                held.reset();
            }};
}

}  // namespace penstock::file

namespace penstock {

Status set_preemption(const Device& device, const PreemptionOptions& options) {
    if (!(options.forced_share >= 0 && options.forced_share <= 1))
        return {EINVAL, "preemption", "forced_share must be from 0 to 1"};
    file::Registry& all = file::registry();
    const std::lock_guard lock(all.mutex);
    all.preemption_options[device.port().get()] = options;
    const auto found = all.preemptions.find(device.port().get());
    if (found != all.preemptions.end() && found->second != nullptr)
        found->second->set_options(options);
    return {};
}

PreemptionStatistics preemption_statistics(const Device& device) {
    file::Registry& all = file::registry();
    const std::lock_guard lock(all.mutex);
    const auto found = all.preemptions.find(device.port().get());
    return found == all.preemptions.end() || found->second == nullptr ? PreemptionStatistics{}
                                                                      : found->second->statistics();
}

}  // namespace penstock
