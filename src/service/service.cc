#include "service/service.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <system_error>

#include "base/clock.h"
#include "base/file_size_signal.h"
#include "penstock/device/atomic.cuh"
#include "service/drop_held.h"
#include "service/write_back_file.h"

namespace penstock::service {
namespace {

using device::DeviceWords;
using device::SystemWords;

// A worker that holds requests and has made no progress for this time counts as dead.
constexpr uint64_t kWorkerLimitNs = 3'500'000'000;
// A sleeping worker looks for work this often, even if its doorbell does not ring.
constexpr std::chrono::milliseconds kSleep{50};
// CUDA: how long a worker spins and then dozes before it parks (device-anchors, section 4.4).
constexpr uint32_t kSpinTurns = 2000, kDozeTurns = 20000;
constexpr uint64_t kDozeNs = 20'000;
constexpr uint64_t kCallsFirstEvery = 16;              // beats of a helper
constexpr uint64_t kBackgroundFirstEvery = 16;         // beats of a worker
constexpr std::chrono::microseconds kPollPeriod{500};  // between two calls of the driver
// Largest page that the waiting team copies, if the host cannot address device memory. The copy
// engine brings larger pages faster than one team does.
constexpr uint64_t kPulledSizeMax = 64 << 10;

std::atomic<uint32_t> systems_created{0};

}  // namespace

Service::Service(std::shared_ptr<backend::Device> device, std::shared_ptr<storage::Storage> storage,
                 const Options& options)
    : device_(std::move(device)), storage_(std::move(storage)) {
    shared_.workers = options.helping || options.static_map ? 1 : std::max(1u, options.workers);
}

Result<std::unique_ptr<Service>> Service::create(std::shared_ptr<backend::Device> device,
                                                 std::shared_ptr<storage::Storage> storage,
                                                 const Options& options) {
    if (options.workers > limits::kWorkersMax || (options.workers == 0 && !options.helping)) {
        return Status{EINVAL, "workers", "must be from 1 to 16"};
    }
    if (options.static_map && options.helping) {
        return Status{EINVAL, "request map",
                      "the static map sends requests to workers: switch helping off"};
    }
    if (options.log_events > kLogEventsMax)
        return Status{EINVAL, "log", "must have at most 2^22 events"};
    std::unique_ptr<Service> service(new Service(std::move(device), std::move(storage), options));
    if (Status status = service->allocate(options); !status.ok()) return status;
    if (Status status = service->start(options); !status.ok()) return status;
    return service;
}

Status Service::allocate(const Options& options) {
    const backend::Properties& properties = device_->properties();
    page_cache::LayoutRequest request;
    request.page_size = options.page_size;
    request.cache_size = options.cache_size;
    request.permit_count = properties.permit_count;
    // Lanes may also work as warps (on a GPU always), so there are as many teams as resident warps.
    const uint32_t warps = std::max(1u, properties.threads_per_block_max / 32);
    request.team_count = std::min(limits::kTeamsMax, properties.permit_count * warps);
    request.ring_count = options.static_map ? options.workers : 1;
    request.bells = !options.helping;
    request.policy = options.policy;
    request.readahead = options.readahead;
    request.one_by_one = options.one_by_one;
    request.prefetch_size = options.prefetch_size;
    // If blocks help, the block that needs a page requested ahead reads it when it needs it.
    if (options.helping) request.ahead_size_max = 0;
    const bool direct = properties.host_addressable;
    // The original sends each page with a copy of its own.
    request.windows_max = direct ? limits::kWindowsMax : limits::kSentWindowsMax;
    request.pulls = !direct && !options.one_by_one && options.page_size <= kPulledSizeMax;
    if (Status status = page_cache::plan_layout(request, &layout_); !status.ok()) return status;

    if (Status s = device_->allocate(layout_.frames_size, backend::Memory::kServed, &frames_);
        !s.ok())
        return s;
    if (Status s = device_->allocate(layout_.tables_size, backend::Memory::kServed, &tables_);
        !s.ok())
        return s;
    if (Status s = device_->allocate(layout_.shared_size, backend::Memory::kPinned,
                                     &shared_memory_);
        !s.ok())
        return s;
    if (Status s = device_->create_copy_stream(&stream_); !s.ok()) return s;
    if (!direct) {
        if (Status s = device_->allocate(layout_.tables_size, backend::Memory::kPinned,
                                         &tables_copy_);
            !s.ok())
            return s;
    }
    page_cache::Parts parts;
    parts.frames = static_cast<std::byte*>(frames_);
    parts.tables = static_cast<std::byte*>(direct ? tables_ : tables_copy_);
    parts.tables_address = static_cast<std::byte*>(tables_);
    parts.shared = static_cast<std::byte*>(shared_memory_);
    FileSystemState* home = page_cache::initialise(layout_, parts,
                                                   ++systems_created & kDescriptorSystemMax);
    device_state_ = reinterpret_cast<FileSystemState*>(
        parts.tables_address + (reinterpret_cast<std::byte*>(home) - parts.tables));
    state_ = home;
    host_words_ = const_cast<HostWords*>(home->host);
    if (direct) return {};
    if (Status s = device_->copy(stream_, tables_, tables_copy_, layout_.tables_size); !s.ok())
        return s;
    return device_->synchronize(stream_,
                                std::chrono::steady_clock::now() + std::chrono::seconds(60));
}

// Makes the kernels of this library that files need, and the file table.
Status Service::make_files(const Options& options) {
    // If the host cannot address the device, its copy of the file slots lies in `tables_copy_`.
    FileState* device_files = state_->files;
    if (tables_copy_ != nullptr) {
        const auto offset = reinterpret_cast<std::byte*>(device_files) -
                            static_cast<std::byte*>(tables_);
        state_->files = reinterpret_cast<FileState*>(static_cast<std::byte*>(tables_copy_) +
                                                     offset);
    }
    const auto find = [this](const char* key, std::unique_ptr<KernelCall>* call) -> Status {
        auto made = KernelCall::create(device_.get(), key);
        if (made.ok()) *call = std::move(made.value());
        return made.ok() || made.status().error_number() == ENOSYS ? Status() : made.status();
    };
    if (Status s = find(kWriteBackKey, &write_back_); !s.ok()) return s;
    if (tables_copy_ != nullptr) {
        if (Status s = find(kDropHeldKey, &drop_held_); !s.ok()) return s;
    }
    std::unique_ptr<PageDropper> dropper;
    if (tables_copy_ != nullptr) {
        auto made = PageDropper::create(device_.get(), device_state_);
        if (!made.ok()) return made.status();
        dropper = std::move(made.value());
    }
    files_ = std::make_unique<FileTable>(storage_, device_.get(), stream_, state_, device_files,
                                         std::move(dropper), options.costs_of);
    files_->on_reuse([this](uint32_t slot, const std::string& path) { keep_counts(slot, path); });
    return {};
}

Status Service::start(const Options& options) {
    if (Status made = make_files(options); !made.ok()) return made;
    shared_.device = device_.get();
    shared_.state = state_;
    shared_.files = files_.get();
    if (options.learning && options.readahead) {
        // Half the cache, so that what the launch itself reads does not evict these pages.
        auto prefetcher = LaunchPrefetcher::create(device_.get(), files_.get(), device_state_,
                                                   layout_.frame_count / 2);
        if (prefetcher.ok()) prefetcher_ = std::move(prefetcher.value());
        if (!prefetcher.ok() && prefetcher.status().error_number() != ENOSYS)
            return prefetcher.status();
        shared_.prefetcher = prefetcher_.get();
    }
    if (options.log_events > 0) log_ = std::make_unique<Log>(*files_, options.log_events);
    shared_.log = log_.get();
    shared_.merges = !options.one_by_one;
    shared_.abort = [this](int error_number, const char* text) { abort(error_number, text); };
    calls_ = std::make_unique<ControlCalls>(*state_, *files_, shared_.abort);
    shared_.window_workers = options.helping ? device_->properties().permit_count : shared_.workers;
    const unsigned helpers = options.helping ? device_->properties().permit_count : 0;
    const unsigned workers = options.helping ? 0 : options.workers;
    if (Status status = make_workers(helpers, &helpers_); !status.ok()) return status;
    if (Status status = make_workers(workers, &workers_); !status.ok()) return status;
    shared_.tickets_behind_max = layout_.tickets_behind_max;
    for (uint32_t i = 0; i < layout_.ring_count; ++i) {
        if (state_->rings[i].answers == nullptr) break;
        auto sender = AnswerSender::create(*device_, state_->rings[i]);
        if (!sender.ok()) return sender.status();
        shared_.answer_senders[i] = sender.value().get();
        answer_senders_.push_back(std::move(sender.value()));
    }
    failed_launches_ = device_->failed_launches();
    try {
        for (unsigned i = 0; i < workers; ++i) threads_.emplace_back([this, i] { work(i); });
        monitor_ = std::thread([this] { monitor(); });
        if (!device_->properties().host_addressable)
            poller_ = std::thread([this] { poll_device(); });
    } catch (const std::system_error&) {
        return {EAGAIN, "file system", "no more threads are to be had"};
    }
    if (options.helping) {
        return device_->add_help({[](void* context, unsigned permit, bool waits) {
                                      return static_cast<Service*>(context)->help(permit, waits);
                                  },
                                  this});
    }
    return {};
}

// If the host cannot address the device, each worker takes some 10 MiB of pinned memory. Touching
// that takes longest, so all workers do it in parallel.
Status Service::make_workers(unsigned count, std::vector<std::unique_ptr<RequestWorker>>* out) {
    for (unsigned i = 0; i < count; ++i) {
        auto worker = RequestWorker::create(shared_, *storage_);
        if (!worker.ok()) return worker.status();
        out->push_back(std::move(worker.value()));
    }
    const auto how = device_->properties().host_addressable ? std::launch::deferred
                                                            : std::launch::async;
    std::vector<std::future<Status>> staged;
    Status status;
    try {
        for (const auto& worker : *out)
            staged.push_back(std::async(how, [&worker] { return worker->take_staging(); }));
    } catch (const std::system_error&) {
        status = {EAGAIN, "file system", "no more threads are to be had"};
    }
    for (auto& one : staged) {
        if (Status taken = one.get(); !taken.ok() && status.ok()) status = taken;
    }
    return status;
}

Service::~Service() {
    device_->remove_help(this);
    {
        const std::lock_guard lock(mutex_);
        stopping_.store(true);
    }
    stop_changed_.notify_all();
    if (state_ != nullptr) {
        for (uint32_t i = 0; i < layout_.ring_count; ++i) {
            // Only workers of the CPU backend sleep on the doorbell; others look for work
            // themselves.
            if (device_->properties().host_addressable) {
                DeviceWords::fetch_add(state_->rings[i].doorbell, 1, site::kRelaxed);
                device_->notify(&state_->rings[i].doorbell);
            }
        }
    }
    for (std::thread& thread : threads_) thread.join();
    if (monitor_.joinable()) monitor_.join();
    if (poller_.joinable()) poller_.join();
    workers_.clear();
    helpers_.clear();
    write_back_.reset();
    drop_held_.reset();
    files_.reset();
    if (stream_ != 0) (void)device_->destroy_stream(stream_);
    for (void* memory : {frames_, tables_, tables_copy_, shared_memory_}) {
        if (memory != nullptr) device_->free(memory);
    }
}

void Service::work(unsigned index) {
    base::FileSizeSignal::block_for_good();
    RequestWorker& worker = *workers_[index];
    const uint32_t ring = layout_.ring_count == 1 ? 0 : index;
    const uint64_t* bell = &state_->rings[ring].doorbell;
    const bool bells = device_->properties().host_addressable;
    uint32_t idle_turns = 0;
    while (!stopping_.load(std::memory_order_relaxed)) {
        const uint64_t seen = bells ? DeviceWords::load(*bell, site::kRelaxed) : 0;
        const bool called = worker.serve_calls(*calls_);
        if (serve(worker, ring) || worker.finish_windows() || called) {
            idle_turns = 0;
            continue;
        }
        if (worker.stopped()) return;
        worker.beat();
        wait_for_work(ring, seen, idle_turns++);
    }
}

// Waits for work. CPU backend: sleeps until the doorbell rings. CUDA: spins, then dozes, and parks
// only while no kernel is in flight.
void Service::wait_for_work(uint32_t ring, uint64_t seen, uint32_t idle_turns) {
    if (device_->properties().host_addressable) {
        device_->wait_changed(&state_->rings[ring].doorbell, seen, kSleep);
        return;
    }
    if (idle_turns < kSpinTurns) return;
    if (idle_turns < kDozeTurns || device_->kernels_seen_in_flight()) {
        base::sleep_until_ns(base::monotonic_ns() + kDozeNs);
        return;
    }
    std::unique_lock lock(mutex_);
    stop_changed_.wait_for(lock, std::chrono::milliseconds(1), [this] { return stopping_.load(); });
}

// Calls the driver repeatedly while kernels run; otherwise a waiting kernel may never continue
// (device-anchors, 6e). Such a call may not return before a kernel ends, so no worker makes it.
void Service::poll_device() {
    while (!stopping_.load()) {
        if (device_->kernels_seen_in_flight()) device_->poll();
        std::unique_lock lock(mutex_);
        stop_changed_.wait_for(lock, kPollPeriod, [this] { return stopping_.load(); });
    }
}

// Serves requests that teams wait for first. Now and then the order is reversed, so that a window
// is not delayed for as long as others miss.
bool Service::serve(RequestWorker& worker, uint32_t ring) {
    const bool background_first = worker.beats() % kBackgroundFirstEvery == 0;
    if (background_first && worker.serve_requests(Shared::kBackground)) return true;
    if (worker.serve_requests(ring)) return true;
    return !background_first && worker.serve_requests(Shared::kBackground);
}

// Serves requests on the stack of a block's thread: the block waits, or has requested a window. It
// uses its own worker if possible, because the kernel reports the end of a read to the thread that
// began it.
bool Service::help(unsigned permit, bool waits) {
    const size_t count = helpers_.size();
    bool looked = false, helped = false;
    for (size_t i = 0; i < count && !helped; ++i) {
        RequestWorker& worker = *helpers_[(permit + i) % count];
        // All helpers serve the same rings, so they are looked at once.
        if ((looked && !worker.has_windows()) || !worker.try_borrow()) continue;
        looked = true;
        helped = waits ? serve_waiting(worker) : worker.serve_requests(Shared::kBackground, false);
        worker.give_back();
        if (!waits) break;
    }
    return helped;
}

bool Service::serve_waiting(RequestWorker& worker) {
    // Requests come first: a look at all ports costs more than most steps. Now and then the order
    // is reversed, so that a call is not delayed for as long as there are requests.
    const bool calls_first = worker.beats() % kCallsFirstEvery == 0;
    const bool called = calls_first && worker.serve_calls(*calls_);
    const bool served = serve(worker, 0) || worker.finish_windows();
    const bool called_late = !served && !calls_first && worker.serve_calls(*calls_);
    return called || served || called_late;
}

Status Service::serve_all(std::chrono::nanoseconds limit) {
    const uint64_t limit_ns = base::monotonic_ns() + static_cast<uint64_t>(limit.count());
    for (;;) {
        if (help(0, true)) continue;
        const QueueLoad load = observe();
        const auto has_windows = [](const auto& worker) { return worker->has_windows(); };
        const bool served = load.backlog == 0 && load.busy_workers == 0 &&
                            std::none_of(helpers_.begin(), helpers_.end(), has_windows) &&
                            std::none_of(workers_.begin(), workers_.end(), has_windows);
        if (served || !abort_cause().empty()) return {};
        const uint64_t now = base::monotonic_ns();
        if (now > limit_ns)
            return {EBUSY, "file system", "requests of kernels are still being served"};
        base::sleep_until_ns(now + kDozeNs);
    }
}

void Service::finish_windows() {
    for (const auto& worker : helpers_) {
        // A running kernel keeps adding windows. Those left before are done after this many turns.
        for (size_t i = 0; i < PendingWindows::kWindowsMax && worker->has_windows(); ++i) {
            if (!worker->try_borrow()) break;  // a block uses it
            (void)worker->finish_windows();
            worker->give_back();
        }
    }
}

// Increases the heartbeat, and raises the abort word when a worker has died while it held requests.
void Service::monitor() {
    struct Watch {
        uint64_t beats = 0, since_ns = 0;
    };
    std::vector<Watch> watches(workers_.size());
    for (uint64_t beat = 1;; ++beat) {
        SystemWords::store(host_words_->heartbeat, beat, site::kRelaxed);
        const uint64_t now = base::monotonic_ns();
        for (size_t i = 0; i < workers_.size(); ++i) {
            const uint64_t beats = workers_[i]->beats();
            if (beats != watches[i].beats || workers_[i]->activity() != Activity::kServing) {
                watches[i] = {beats, now};
            } else if (now - watches[i].since_ns > kWorkerLimitNs) {
                abort(EOWNERDEAD,
                      "worker " + std::to_string(i) + " stopped while it held requests");
            }
        }
        look_for_held_copies(now);
        if (device_->failed_launches() != failed_launches_) {
            // Blocks were stopped at any point: with pages pinned, ports locked or tickets taken.
            abort(ECANCELED,
                  "a kernel failed while it may have held pages: make a new file system");
        }
        // A GPU thread raised it, because no heartbeat came in time.
        const uint64_t raised = SystemWords::load(host_words_->abort, site::kRelaxed);
        if (raised != 0)
            abort(static_cast<int>(raised),
                  "the program stood still while a kernel waited for it: make a new file system");
        // If an abort of the device does not end the waits in kernels, the abort word does.
        if (const Status cause = device_->abort_cause(); !cause.ok())
            abort(cause.error_number(), cause.message());
        if (log_ != nullptr) add_sample();
        std::unique_lock lock(mutex_);
        const auto period = std::chrono::nanoseconds(limits::kHeartbeatPeriodNs);
        if (stop_changed_.wait_for(lock, period, [this] { return stopping_.load(); })) return;
    }
}

// Looks for copies that kernels wait for, and that are delayed by a call that waits for those
// kernels.
void Service::look_for_held_copies(uint64_t now_ns) {
    if (!device_->kernels_seen_in_flight()) return;
    if (device_->longest_copy_call_ns(now_ns) <= kWorkerLimitNs) return;
    abort(EDEADLK,
          "the CUDA driver holds up copies that a kernel waits for: another thread is in a call, "
          "as cudaFree or the first launch of a kernel, that waits for that kernel");
}

void Service::abort(int error_number, const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    aborted_ = true;
    abort_cause_ = text;
    const int error = error_number != 0 ? error_number : ECANCELED;
    SystemWords::store(host_words_->abort, static_cast<uint64_t>(error), site::kRelaxed);
}

std::string Service::abort_cause() const {
    const std::lock_guard lock(mutex_);
    return abort_cause_;
}

}  // namespace penstock::service
