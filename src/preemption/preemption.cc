#include "preemption/preemption.h"

#include <sys/prctl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "penstock/device/preemption_queue.cuh"
#include "preemption/begin_launch.h"

namespace penstock::preemption {
namespace {

using device::DeviceWords;
using device::SystemWords;

constexpr int kFirstPriority = 1 << 16;  // above what programs use; CUDA clamps it
using std::chrono::microseconds;
// How long the dispatcher sleeps, by Attention: completions ring it, words that kernels store and
// workers that end do not.
constexpr microseconds kIdlePeriod{50'000}, kBellPeriod{2'000}, kPollPeriod{200};
// A GPU rings nothing: its words are looked at so often, with blocks outside and before.
constexpr microseconds kGpuPollPeriod{10}, kGpuLookPeriod{100};

// The arguments of one preemptible launch, and one pointer for each parameter.
struct OwnedArguments {
    Arguments arguments;
    std::vector<void*> pointers;
};

LaunchRequest preemptible_request(const PreemptibleEntry& entry, const LaunchRequest& request,
                                  Launch launch) {
    auto owned = std::make_shared<OwnedArguments>();
    owned->arguments = {request.arguments, launch};
    owned->pointers.assign(request.argument_pointers,
                           request.argument_pointers + entry.parameter_count);
    owned->pointers.push_back(&owned->arguments.launch);
    LaunchRequest result;
    result.shape = request.shape;
    result.function = entry.preemptible;
    result.argument_pointers = owned->pointers.data();
    result.invoke = entry.invoke;
    result.arguments = std::shared_ptr<void>(owned, &owned->arguments);
    return result;
}

size_t rounded(size_t size) { return (size + 255) & ~size_t{255}; }

// Memory of `count` saved blocks, by offsets in one range.
struct Layout {
    size_t saved, ready, thread_words, block_words, size;
    uint32_t ring_shift;

    static Layout of(const PreemptionState& state, size_t count) {
        Layout layout{};
        layout.ring_shift = static_cast<uint32_t>(std::countr_zero(std::bit_ceil(count)));
        layout.saved = rounded(sizeof(PreemptionState));
        layout.ready = layout.saved + rounded(count * sizeof(SavedBlock));
        layout.thread_words = layout.ready +
                              rounded((size_t{1} << layout.ring_shift) * sizeof(uint64_t));
        layout.block_words = layout.thread_words + rounded(count * state.frame.thread_words *
                                                           state.threads * sizeof(uint32_t));
        layout.size = layout.block_words + rounded(count * state.block_size);
        return layout;
    }
};

// Returns how many blocks fit into `room` bytes, at most `count`.
size_t fitting_count(const PreemptionState& state, size_t count, size_t room) {
    size_t least = 0, most = count;
    while (least < most) {
        const size_t middle = (least + most + 1) / 2;
        if (Layout::of(state, middle).size <= room) {
            least = middle;
        } else {
            most = middle - 1;
        }
    }
    return least;
}

// Adds the final counters of a launch.
void add_counts(const PreemptionWords& words, PreemptionStatistics* sums) {
    sums->left += words.left;
    sums->spun += words.spun;
    sums->full += words.full;
    sums->resume_ns += words.resume_ns;
    sums->resume_ns_max = std::max(sums->resume_ns_max, words.resume_ns_max);
}

}  // namespace

Result<std::unique_ptr<Preemption>> Preemption::create(backend::Device* device,
                                                       const PreemptionOptions& options) {
    std::unique_ptr<Preemption> made(new Preemption(device, options));
    if (Status status = made->allocate(); !status.ok()) return status;
    made->thread_ = std::thread([self = made.get()] { self->work(); });
    return made;
}

Preemption::Preemption(backend::Device* device, const PreemptionOptions& options)
    : device_(device),
      options_(options),
      pool_(options.memory_size),
      launches_(kLaunchesMax),
      streams_(2 * (device->properties().host_addressable ? kStreamsMax : kGpuStreamsMax)) {}

Status Preemption::allocate() {
    if (find_kernel_by_key(kBeginLaunchKey) == nullptr)
        return {ENOSYS, "preemption", "a kernel of the library's own is missing"};
    void* memory = nullptr;
    if (Status s = device_->allocate(options_.memory_size, backend::Memory::kDevice, &memory);
        !s.ok())
        return s;
    memory_ = static_cast<std::byte*>(memory);
    const size_t size = (kLaunchesMax + 1) * sizeof(PreemptionWords);
    if (Status s = device_->allocate(size, backend::Memory::kPinned, &memory); !s.ok()) return s;
    words_ = static_cast<PreemptionWords*>(memory);
    bell_ = &words_[kLaunchesMax].watch;
    if (Status s = device_->allocate(kLaunchesMax * sizeof(PreemptionState),
                                     backend::Memory::kPinned, &memory);
        !s.ok())
        return s;
    initial_ = static_cast<PreemptionState*>(memory);
    for (size_t i = 0; i < streams_.size(); ++i) {
        streams_[i].first = i % 2 == 0;
        const int priority = streams_[i].first ? kFirstPriority : 0;
        if (Status s = device_->create_stream(priority, &streams_[i].id); !s.ok()) return s;
    }
    return {};
}

Preemption::~Preemption() {
    if (thread_.joinable()) {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        DeviceWords::fetch_add(*bell_, 1, site::kRelaxed);
        device_->ring(bell_);
        thread_.join();
    }
    device_->set_bell(nullptr);
    for (const WorkerStream& stream : streams_) {
        if (stream.id != 0) (void)device_->destroy_stream(stream.id);
    }
    if (words_ != nullptr) device_->free(words_);
    if (initial_ != nullptr) device_->free(initial_);
    if (memory_ != nullptr) device_->free(memory_);
}

Status Preemption::launch(backend::StreamId stream, const PreemptibleEntry& entry,
                          LaunchRequest request) {
    std::unique_lock lock(mutex_);
    if (!options_.enabled) {
        lock.unlock();
        return device_->launch(stream, std::move(request));
    }
    for (size_t i = 0, left = in_flight_count_; left > 0; ++i) {
        if (launches_[i].used) --left;
        end_if_over(i);
    }
    InFlight* const launch = take(entry, request);
    if (launch == nullptr) {
        totals_.full += request.shape.grid.count();
        lock.unlock();
        return device_->launch(stream, std::move(request));
    }
    // The lock is not held: a launch may wait for room, which blocks outside must make.
    const Launch first{launch->state, 0};
    PreemptionState* const state = launch->state;
    PreemptionWords* const words = launch->words;
    const PreemptionState* const initial = launch->initial;
    lock.unlock();

    Status status;
    if (device_->properties().host_addressable) {
        clear_launch(state, initial, 0, 1);  // no other launch uses this memory
    } else {
        const auto kernel = reinterpret_cast<decltype(&begin_launch)>(
            const_cast<void*>(find_kernel_by_key(kBeginLaunchKey)->function));
        status = device_->launch(stream,
                                 make_launch({{1}, {kBeginThreads}, 0}, kernel, state, initial));
    }
    if (status.ok()) status = device_->launch(stream, preemptible_request(entry, request, first));
    const bool held = initial->stays == 0;
    if (status.ok() && held) status = device_->hold(stream, &words->done);
    if (status.ok() && held) status = device_->write_value(stream, &words->released, 1);
    lock.lock();
    if (!held) words->released = 1;
    if (!status.ok()) {
        SystemWords::store(words->done, 1, site::kComplete);
        SystemWords::store(words->passed, 1, site::kComplete);
        SystemWords::store(words->released, 1, site::kComplete);
    }
    launches_[static_cast<size_t>(words - words_)].submitted = true;
    lock.unlock();
    DeviceWords::fetch_add(*bell_, 1, site::kRelaxed);
    device_->ring(bell_);
    return status;
}

Preemption::InFlight* Preemption::take(const PreemptibleEntry& entry,
                                       const LaunchRequest& request) {
    const auto free = std::ranges::find_if(launches_, [](const auto& one) { return !one.used; });
    if (free == launches_.end()) return nullptr;
    InFlight& launch = *free;
    launch.initial = &initial_[free - launches_.begin()];
    fill_state(launch, entry, request);
    const size_t wanted = std::min<uint64_t>(launch.initial->block_count, limits::kSavedBlocksMax);
    // A launch takes at most half of the memory, so that the next one finds some.
    const size_t room = std::min(pool_.largest(), std::max<size_t>(options_.memory_size / 2, 1));
    const size_t count = fitting_count(*launch.initial, wanted, room);
    if (count == 0) return nullptr;
    const Layout layout = Layout::of(*launch.initial, count);
    launch.offset = *pool_.take(layout.size);
    std::byte* const base = memory_ + launch.offset;
    launch.state = reinterpret_cast<PreemptionState*>(base);
    launch.words = &words_[free - launches_.begin()];
    *launch.words = {};
    PreemptionState& initial = *launch.initial;
    initial.words = launch.words;
    initial.ring_shift = layout.ring_shift;
    initial.saved_count = static_cast<uint32_t>(count);
    initial.saved_free = count;
    initial.saved = reinterpret_cast<SavedBlock*>(base + layout.saved);
    initial.ready = reinterpret_cast<uint64_t*>(base + layout.ready);
    initial.thread_words = base + layout.thread_words;
    initial.block_words = base + layout.block_words;
    launch.workers = preemptible_request(entry, request, {launch.state, 1});
    launch.options = options_;
    launch.watch_seen = 0;
    launch.watching = launch.failed = launch.submitted = false;
    launch.started_workers = 0;
    launch.used = true;
    ++in_flight_count_;
    ++totals_.launches;
    totals_.blocks += initial.block_count;
    return &launch;
}

// Fills in what does not depend on the memory that the launch gets.
void Preemption::fill_state(InFlight& launch, const PreemptibleEntry& entry,
                            const LaunchRequest& request) {
    PreemptionState& state = *launch.initial;
    state = {};
    state.block_count = request.shape.grid.count();
    state.grid_x = request.shape.grid.x;
    state.grid_y = request.shape.grid.y;
    state.grid_z = request.shape.grid.z;
    state.threads = static_cast<uint32_t>(request.shape.block.count());
    state.frame = entry.frame;
    if (entry.frame.dynamic_shared != 0)
        state.dynamic_shared_size = static_cast<uint32_t>(request.shape.dynamic_shared_size);
    const size_t block_size = shared_offset(entry.frame) + entry.frame.shared_size +
                              state.dynamic_shared_size;
    state.block_size = (block_size + 63) & ~size_t{63};
    state.keeps_popping = options_.keeps_popping ? 1 : 0;
    state.policy = options_.policy;
    state.forced_share = static_cast<uint32_t>(options_.forced_share * 65536);
    state.forced_seed = options_.forced_seed;
    state.switch_ns = options_.switch_ns;
    state.stays = device_->properties().host_addressable ? 0 : 1;
    state.bell = bell_;
    state.waiting = device_->waiting_blocks();
}

void Preemption::set_options(const PreemptionOptions& options) {
    const std::lock_guard lock(mutex_);
    const size_t memory_size = options_.memory_size;  // it has been allocated
    options_ = options;
    options_.memory_size = memory_size;
}

PreemptionStatistics Preemption::statistics() const {
    const std::lock_guard lock(mutex_);
    PreemptionStatistics result = totals_;
    for (const InFlight& launch : launches_) {
        if (launch.used && SystemWords::load(launch.words->done, site::kCompletion) != 0)
            add_counts(*launch.words, &result);
    }
    return result;
}

void Preemption::work() {
    prctl(PR_SET_TIMERSLACK, 1000);  // ns
    bool had_bell = false;
    std::unique_lock lock(mutex_);
    while (!stopping_) {
        const uint64_t seen = DeviceWords::load(*bell_, site::kCompletion);
        Attention attention = Attention::kIdle;
        bool moved = false;
        tell_others(look_at_streams());
        if (const Status cause = device_->abort_cause(); !cause.ok()) end_all(cause);
        for (size_t i = 0, left = in_flight_count_; left > 0; ++i) {
            if (launches_[i].used) --left;
            moved = step(i, &attention) || moved;
        }
        const bool polls = attention != Attention::kIdle;
        device_->set_bell(polls ? bell_ : nullptr);
        // What was completed before the bell was there has rung nothing.
        moved = moved || (polls && !had_bell);
        had_bell = polls;
        const bool busy = in_flight_count_ > 0;
        if (moved) continue;
        lock.unlock();
        // Where blocks serve requests while they wait, those outside cannot.
        if (polls && device_->help()) {
            lock.lock();
            continue;
        }
        const bool remote = !device_->properties().host_addressable;
        microseconds limit = kIdlePeriod;
        if (attention == Attention::kBell) limit = kBellPeriod;
        if (attention == Attention::kPoll) limit = kPollPeriod;
        if (remote && busy) limit = polls ? kGpuPollPeriod : kGpuLookPeriod;
        device_->wait_changed(bell_, seen, limit);
        lock.lock();
    }
}

// Does what can be done for a launch now. Returns whether to look again at once. Raises
// `*attention` to what its blocks outside need.
bool Preemption::step(size_t index, Attention* attention) {
    InFlight& launch = launches_[index];
    if (!launch.used || end_if_over(index) || launch.failed) return false;
    const uint64_t watch = SystemWords::load(launch.words->watch, site::kWatch);
    if (watch != launch.watch_seen) launch.watching = true;
    launch.watch_seen = watch;
    if (watch == 0) return false;  // no block has left so far
    const bool stays = launch.initial->stays != 0;
    const bool moved = !stays && launch.watching && watch_launch(launch, attention);
    const Progress progress = progress_of(launch);
    if (progress.backlog > 0) start_workers(index, progress);
    if (stays || progress.backlog > 0) *attention = Attention::kPoll;
    return moved;
}

Preemption::Progress Preemption::progress_of(const InFlight& launch) {
    if (launch.initial->stays != 0) {
        return {SystemWords::load(launch.words->backlog, site::kRelaxed),
                SystemWords::load(launch.words->workers, site::kRelaxed)};
    }
    return {DeviceWords::load(launch.state->ready_tail, site::kRelaxed) -
                DeviceWords::load(launch.state->ready_head, site::kRelaxed),
            DeviceWords::load(launch.state->workers, site::kRelaxed)};
}

// One turn of the launch's watcher. Returns whether it must look again at once.
bool Preemption::watch_launch(InFlight& launch, Attention* attention) {
    const Watched seen = watch(*launch.state, 0, 1, base::monotonic_ns());
    if (seen.outside > 0) {
        const Attention needed = seen.unannounced > 0 ? Attention::kPoll : Attention::kBell;
        *attention = std::max(*attention, needed);
        return false;
    }
    launch.watching = !end_watch(*launch.state);
    return launch.watching;
}

// Launches workers for ready blocks, unless as many have been launched that have not begun.
void Preemption::start_workers(size_t index, const Progress& progress) {
    InFlight& launch = launches_[index];
    const uint64_t expected = launch.started_workers - progress.workers;
    const uint64_t backlog = progress.backlog;
    const uint64_t room = device_->properties().permit_count;
    uint64_t wanted = launch.options.batches ? std::min(backlog, room) : backlog;
    wanted = wanted > expected ? wanted - expected : 0;
    for (WorkerStream& stream : streams_) {
        if (wanted == 0) return;
        if (stream.launch >= 0 || stream.first != launch.options.first) continue;
        if (launch.options.dispatch_delay_us > 0)
            base::sleep_until_ns(base::monotonic_ns() +
                                 static_cast<uint64_t>(launch.options.dispatch_delay_us * 1000));
        const uint64_t count = launch.options.batches ? wanted : 1;
        LaunchRequest request = launch.workers;
        request.shape.grid = Dimensions(static_cast<unsigned>(count));
        if (Status status = device_->launch(stream.id, std::move(request)); !status.ok()) {
            fail(launch, status);
            return;
        }
        stream.launch = static_cast<int>(index);
        launch.started_workers += count;
        ++totals_.restarts;
        wanted -= count;
    }
}

// Finds the streams whose workers have ended, and how. Returns how many have not.
unsigned Preemption::look_at_streams() {
    unsigned busy = 0;
    for (WorkerStream& stream : streams_) {
        bool idle = false;
        if (stream.launch < 0) continue;
        Status status = device_->query(stream.id, &idle);
        if (status.ok() && !idle) {
            ++busy;
            continue;
        }
        if (status.ok()) status = device_->synchronize(stream.id, backend::Deadline::max());
        InFlight& launch = launches_[static_cast<size_t>(std::exchange(stream.launch, -1))];
        if (!status.ok()) fail(launch, status);
    }
    return busy;
}

// Tells launches on a GPU whether kernels of other streams are in flight: these may wait for a
// place, as far as the host knows.
void Preemption::tell_others(unsigned busy_workers) {
    if (device_->properties().host_addressable || in_flight_count_ == 0) return;
    const unsigned busy = device_->busy_streams();
    const uint64_t others = busy > busy_workers + 1 ? busy - busy_workers - 1 : 0;
    for (const InFlight& launch : launches_)
        if (launch.used) SystemWords::store(launch.words->others_waiting, others, site::kRelaxed);
}

// Frees a launch that is over: no block of its grid and no worker uses its state.
bool Preemption::end_if_over(size_t index) {
    InFlight& launch = launches_[index];
    if (!launch.used || !launch.submitted) return false;  // launch() still uses its words
    // After a failure blocks have stopped anywhere, and neither word comes.
    const bool over = SystemWords::load(launch.words->passed, site::kCompletion) != 0 &&
                      SystemWords::load(launch.words->done, site::kCompletion) != 0 &&
                      SystemWords::load(launch.words->released, site::kCompletion) != 0;
    const bool dead = device_->failed_launches() != 0 && !device_->kernels_in_flight();
    if (!over && !dead) return false;
    for (const WorkerStream& stream : streams_)
        if (stream.launch == static_cast<int>(index)) return false;
    add_counts(*launch.words, &totals_);
    pool_.give_back(launch.offset);
    launch.used = false;
    launch.workers = {};
    --in_flight_count_;
    return true;
}

// Ends the waits of all launches after an abort of the device.
void Preemption::end_all(Status cause) {
    for (InFlight& launch : launches_) {
        if (launch.used && launch.submitted && !launch.failed) fail(launch, cause);
    }
}

// Ends a launch whose workers failed: its stream gets the error.
void Preemption::fail(InFlight& launch, Status status) {
    launch.failed = true;
    SystemWords::store(launch.words->abort, static_cast<uint64_t>(status.error_number()),
                       site::kRelaxed);
    SystemWords::store(launch.words->done, 1, site::kComplete);
    device_->end_hold(&launch.words->done, status);
}

}  // namespace penstock::preemption
