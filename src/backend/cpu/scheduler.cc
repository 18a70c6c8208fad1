#include "backend/cpu/scheduler.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "backend/cpu/crash_report.h"
#include "backend/cpu/placement.h"
#include "base/file_size_signal.h"
#include "base/kept_text.h"

namespace penstock::backend::cpu {
namespace {

// Up to this size the caller makes a copy on an idle stream, which takes less time than to wake the
// engine.
constexpr size_t kCopyAtOnceMax = 64 << 10;

Status no_such_stream() { return {EINVAL, "stream", "there is no such stream"}; }

Status check_shape(const LaunchShape& shape) {
    if (shape.block.count() == 0 || shape.block.count() > kLanesMax) {
        return {EINVAL, "launch", "a block has 1 to 1024 threads"};
    }
    if (shape.grid.count() == 0) return {EINVAL, "launch", "the grid is empty"};
    if (shape.dynamic_shared_size > kDynamicSharedMax) {
        return {EINVAL, "launch", "more dynamic shared memory than the device has for a block"};
    }
    return {};
}

language::Index3 block_index(uint64_t number, const Dimensions& grid) {
    return {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
            static_cast<unsigned>(number / grid.x / grid.y)};
}

Status kernel_failure(int error) {
    switch (error) {
        case EDEADLK:
            return {EDEADLK, "kernel", "threads of a block wait at different barriers"};
        case ENOMEM:
            return {ENOMEM, "kernel", "no memory for the threads of a block"};
        default:
            return {EFAULT, "kernel", "the kernel stopped itself"};
    }
}

}  // namespace

Scheduler::Scheduler(unsigned permit_count, double watchdog_seconds, LinkModel link,
                     std::shared_ptr<void> keep_alive)
    : watchdog_seconds_(watchdog_seconds),
      keep_alive_(std::move(keep_alive)),
      slots_(permit_count),
      copy_engine_(std::make_unique<CopyEngine>(link)) {
    if (watchdog_seconds_ > 0) watchdog_ = std::thread([this] { watch(); });
}

Scheduler::~Scheduler() = default;

void Scheduler::close() {
    std::unique_lock lock(mutex_);
    closing_ = true;
    stop_residents(nullptr);
    work_.notify_all();
    lock.unlock();
    copy_engine_.reset();  // jobs begun end first, and lock mutex_
    lock.lock();
    idle_.wait(lock, [&] { return thread_count_ == 0; });
    watched_.notify_all();
    lock.unlock();
    if (watchdog_.joinable()) watchdog_.join();
}

Status Scheduler::create_stream(int priority, StreamId* out) {
    std::lock_guard lock(mutex_);
    auto stream = std::make_shared<Stream>();
    stream->priority = priority;
    *out = ++last_stream_;
    streams_.emplace(*out, std::move(stream));
    return {};
}

Status Scheduler::destroy_stream(StreamId id) {
    std::unique_lock lock(mutex_);
    auto stream = find_stream(id);
    if (stream == nullptr) return no_such_stream();
    auto is_idle = [&] { return stream->idle(); };
    if (watchdog_seconds_ <= 0) {
        idle_.wait(lock, is_idle);
    } else if (!idle_.wait_for(lock, std::chrono::duration<double>(2 * watchdog_seconds_),
                               is_idle)) {
        return {ETIMEDOUT, "destroy_stream", "the stream is still busy"};
    }
    streams_.erase(id);
    return {};
}

Status Scheduler::launch(StreamId id, LaunchRequest request) {
    if (Status status = check_shape(request.shape); !status.ok()) return status;
    const KernelEntry* kernel = find_kernel(request.function);
    if (kernel == nullptr) {
        return {EINVAL, "launch",
                "the kernel is not registered, or another has its key (PENSTOCK_KERNEL)"};
    }
    std::lock_guard lock(mutex_);
    auto stream = find_stream(id);
    if (stream == nullptr) return no_such_stream();
    if (!aborted_.ok()) return aborted_;
    Operation operation;
    operation.kind = Kind::kLaunch;
    operation.request = std::move(request);
    operation.kernel = kernel;
    stream->queue.push_back(std::move(operation));
    launches_in_flight_.fetch_add(1, std::memory_order_relaxed);
    advance(stream);
    return {};
}

Status Scheduler::copy(StreamId id, const CopyJob& job) {
    std::unique_lock lock(mutex_);
    auto stream = find_stream(id);
    if (stream == nullptr) return no_such_stream();
    if (stream->idle() && !copy_engine_->paced() && job.size <= kCopyAtOnceMax) {
        stream->busy = true;
        lock.unlock();
        do_copy_job(job);
        lock.lock();
        stream->busy = false;
        advance(stream);
        idle_.notify_all();
        return {};
    }
    Operation operation;
    operation.job = job;
    stream->queue.push_back(std::move(operation));
    advance(stream);
    return {};
}

Status Scheduler::hold(StreamId id, const uint64_t* address) {
    std::lock_guard lock(mutex_);
    auto stream = find_stream(id);
    if (stream == nullptr) return no_such_stream();
    Operation operation;
    operation.kind = Kind::kHold;
    operation.address = address;
    stream->queue.push_back(std::move(operation));
    launches_in_flight_.fetch_add(1, std::memory_order_relaxed);  // a held stream counts as one
    advance(stream);
    return {};
}

void Scheduler::end_hold(const uint64_t* address, Status status) {
    std::lock_guard lock(mutex_);
    look_at_holds(address, status);
}

// Lets the streams go on whose words have been stored. Those held for `failed` get `status`.
void Scheduler::look_at_holds(const uint64_t* failed, Status status) {
    if (held_count_ == 0) return;
    for (const auto& [id, stream] : streams_) {
        const uint64_t* const word = stream->held;
        // Partner: the last block's store in preemption::finish.
        if (word == nullptr || __atomic_load_n(word, __ATOMIC_ACQUIRE) == 0) continue;
        if (word == failed && stream->error.ok()) stream->error = status;
        stream->held = nullptr;
        --held_count_;
        stream->busy = false;
        launches_in_flight_.fetch_sub(1, std::memory_order_release);
        advance(stream);
        idle_.notify_all();
    }
}

void Scheduler::count_waiting() {
    uint64_t count = 0;
    for (const auto& launch : ready_) count += launch->block_count - launch->next_block;
    __atomic_store_n(&waiting_blocks_, count, __ATOMIC_RELAXED);
}

Status Scheduler::synchronize(StreamId id, Deadline deadline) {
    std::unique_lock lock(mutex_);
    auto stream = find_stream(id);
    if (stream == nullptr) return no_such_stream();
    auto is_idle = [&] { return stream->idle(); };
    if (deadline == Deadline::max()) {
        idle_.wait(lock, is_idle);
    } else if (!idle_.wait_until(lock, deadline, is_idle)) {
        return {ETIMEDOUT, "synchronize", "the stream is still busy"};
    }
    return std::exchange(stream->error, Status());
}

Status Scheduler::query(StreamId id, bool* idle) {
    std::lock_guard lock(mutex_);
    auto stream = find_stream(id);
    if (stream == nullptr) return no_such_stream();
    *idle = stream->idle();
    return {};
}

bool Scheduler::kernels_in_flight() const {
    return launches_in_flight_.load(std::memory_order_acquire) != 0;
}

Status Scheduler::add_help(Help help) {
    std::lock_guard lock(mutex_);
    for (unsigned i = 0; i < kHelpsMax; ++i) {
        if (helps_[i] != nullptr) continue;
        helps_[i] = std::make_unique<Help>(help);
        help_slots_[i].store(helps_[i].get(),
                             std::memory_order_release);  // partner: HelpCaller::help
        return {};
    }
    return {ENOSPC, "add_help", "too many who help on one device"};
}

void Scheduler::remove_help(void* context) {
    std::unique_lock lock(mutex_);
    for (unsigned i = 0; i < kHelpsMax; ++i) {
        if (helps_[i] == nullptr || helps_[i]->context != context) continue;
        help_slots_[i].store(nullptr, std::memory_order_seq_cst);  // partner: HelpCaller::help
        auto in_step = [&] {
            if (host_caller_.helping() == helps_[i].get()) return true;
            return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
                return slot.resident != nullptr && slot.resident->helping() == helps_[i].get();
            });
        };
        while (in_step()) {
            lock.unlock();
            std::this_thread::sleep_for(std::chrono::microseconds(50));
            lock.lock();
        }
        helps_[i] = nullptr;
    }
}

bool Scheduler::help() {
    const std::lock_guard lock(host_help_mutex_);
    return host_caller_.help(help_slots_, 0, true);
}

std::string Scheduler::diagnosis() const {
    std::lock_guard lock(mutex_);
    return diagnosis_;
}

void Scheduler::abort(Status cause) {
    std::lock_guard lock(mutex_);
    if (aborted_.ok()) aborted_ = cause;
    stop_residents(nullptr);
    for (Slot& slot : slots_) {
        if (slot.launch != nullptr && slot.launch->failure.ok()) slot.launch->failure = aborted_;
    }
    auto dropped = std::exchange(ready_, {});
    for (const auto& launch : dropped) {
        launch->next_block = launch->block_count;
        if (launch->failure.ok()) launch->failure = aborted_;
        complete_if_over(launch);
    }
    count_waiting();
    for (const auto& [id, stream] : streams_) {
        if (stream->held == nullptr) continue;
        if (stream->error.ok()) stream->error = aborted_;
        stream->held = nullptr;
        --held_count_;
        stream->busy = false;
        launches_in_flight_.fetch_sub(1, std::memory_order_release);
        advance(stream);
    }
    idle_.notify_all();
}

std::shared_ptr<Scheduler::Stream> Scheduler::find_stream(StreamId id) {
    auto found = streams_.find(id);
    return found == streams_.end() ? nullptr : found->second;
}

// Starts the stream's next operation, if none is in progress.
void Scheduler::advance(const std::shared_ptr<Stream>& stream) {
    while (!stream->busy && !stream->queue.empty() && !closing_) {
        Operation operation = std::move(stream->queue.front());
        stream->queue.pop_front();
        if (operation.kind == Kind::kHold) {
            // After an error no block comes that would store the word.
            if (stream->error.ok() && !aborted_.ok()) stream->error = aborted_;
            if (!stream->error.ok() || __atomic_load_n(operation.address, __ATOMIC_ACQUIRE) != 0) {
                skip_launch();
                continue;
            }
            stream->busy = true;
            stream->held = operation.address;
            ++held_count_;
        } else if (operation.kind == Kind::kLaunch) {
            if (stream->error.ok() && !aborted_.ok()) stream->error = aborted_;
            if (!stream->error.ok()) {
                skip_launch();
                continue;
            }
            stream->busy = true;
            make_ready(stream, std::move(operation));
        } else {
            stream->busy = true;
            copy_engine_->submit(operation.job, [this, stream] {
                std::lock_guard lock(mutex_);
                stream->busy = false;
                advance(stream);
                idle_.notify_all();
            });
        }
    }
}

void Scheduler::make_ready(const std::shared_ptr<Stream>& stream, Operation operation) {
    auto launch = std::make_shared<Launch>();
    launch->stream = stream;
    launch->block_count = operation.request.shape.grid.count();
    launch->request = std::move(operation.request);
    launch->kernel = operation.kernel;
    auto behind = ready_.begin();
    while (behind != ready_.end() && (*behind)->stream->priority >= stream->priority) ++behind;
    ready_.insert(behind, std::move(launch));
    count_waiting();
    ensure_residents();
}

// Wakes as many residents as there are blocks to run, up to the permits.
void Scheduler::ensure_residents() {
    uint64_t wanted = 0;
    for (const auto& launch : ready_) wanted += launch->block_count - launch->next_block;
    for (unsigned i = 0; i < idle_resident_count_ && i < wanted; ++i) work_.notify_one();
    uint64_t missing = wanted > idle_resident_count_ ? wanted - idle_resident_count_ : 0;
    for (unsigned permit = 0; permit < slots_.size() && missing > 0; ++permit) {
        Slot& slot = slots_[permit];
        if (slot.resident != nullptr) continue;
        slot.resident = std::make_shared<Resident>(permit, &help_slots_);
        ++thread_count_;
        --missing;
        std::thread([self = shared_from_this(), permit, resident = slot.resident] {
            base::FileSizeSignal::block_for_good();  // blocks that help write files
            begin_on_cpu(permit);
            self->serve(permit, resident);
        }).detach();
    }
}

void Scheduler::serve(unsigned permit, const std::shared_ptr<Resident>& resident) {
    CrashStack crash_stack;
    std::unique_lock lock(mutex_);
    for (;;) {
        while (ready_.empty() && !closing_) {
            ++idle_resident_count_;
            work_.wait(lock);
            --idle_resident_count_;
        }
        if (closing_) break;
        std::shared_ptr<Launch> launch = ready_.front();
        uint64_t number = launch->next_block++;
        if (launch->next_block == launch->block_count) ready_.pop_front();
        count_waiting();
        ++launch->running_count;
        Slot& slot = slots_[permit];
        slot.launch = launch;
        slot.block_index = block_index(number, launch->request.shape.grid);
        slot.progress_seen = progress_of(resident->block());
        slot.same_since = Clock::now();
        resident->block().stop.store(StopReason::kNone, std::memory_order_relaxed);
        if (running_count_++ == 0) watched_.notify_one();
        language::Index3 index = slot.block_index;
        lock.unlock();
        resident->run_block(launch->request, *launch->kernel, index);
        lock.lock();
        // The watchdog has reported the block, and another thread has the permit.
        if (resident->block().stop.load(std::memory_order_relaxed) == StopReason::kGivenUp) return;
        finish_block(slot);
    }
    slots_[permit].resident = nullptr;
    --thread_count_;
    idle_.notify_all();
}

std::string Scheduler::Slot::where(const Launch& running) const {
    return std::string("kernel ") + running.kernel->key + ", block (" +
           std::to_string(block_index.x) + "," + std::to_string(block_index.y) + "," +
           std::to_string(block_index.z) + "): ";
}

void Scheduler::finish_block(Slot& slot) {
    BlockState& block = slot.resident->block();
    std::shared_ptr<Launch> launch = std::move(slot.launch);
    slot.launch = nullptr;
    --running_count_;
    --launch->running_count;
    if (block.stop_error != 0) {
        fail(*launch, kernel_failure(block.stop_error), slot.where(*launch) + block.stop_text);
    }
    look_at_holds(nullptr, {});
    complete_if_over(launch);
}

// Drops the launch's blocks that have not started, and stops those that run. `text`, the diagnosis,
// becomes part of the error that synchronize returns.
void Scheduler::fail(Launch& launch, Status status, const std::string& text) {
    if (!launch.failure.ok()) return;
    const std::string whole = std::string(status.text()) + ": " + text;
    launch.failure = {status.error_number(), status.origin(),
                      base::kept_text(whole, status.text())};
    failed_launches_.fetch_add(1);
    diagnosis_ = text;
    launch.next_block = launch.block_count;
    ready_.remove_if([&](const auto& ready) { return ready.get() == &launch; });
    count_waiting();
    stop_residents(&launch);
}

void Scheduler::stop_residents(const Launch* launch) {
    for (Slot& slot : slots_) {
        if (slot.launch == nullptr || (launch != nullptr && slot.launch.get() != launch)) continue;
        slot.resident->block().stop.store(StopReason::kCancelled, std::memory_order_relaxed);
    }
}

void Scheduler::complete_if_over(const std::shared_ptr<Launch>& launch) {
    if (launch->next_block < launch->block_count || launch->running_count > 0) return;
    Stream& stream = *launch->stream;
    if (stream.error.ok()) stream.error = launch->failure;
    stream.busy = false;
    launches_in_flight_.fetch_sub(1, std::memory_order_release);
    advance(launch->stream);
    idle_.notify_all();
}

void Scheduler::skip_launch() {
    launches_in_flight_.fetch_sub(1, std::memory_order_release);
    idle_.notify_all();
}

}  // namespace penstock::backend::cpu
