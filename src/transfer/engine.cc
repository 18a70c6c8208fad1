#include "transfer/engine.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/file_size_signal.h"
#include "base/spin_until.h"
#include "base/units.h"
#include "transfer/job_scheduler.h"
#include "transfer/staged_range.h"
#include "transfer/thread_executor.h"

namespace penstock::transfer {
namespace {

// Shorter windows make direct transfers too short. Copies may be divided into smaller parts.
constexpr uint64_t kWindowSizeMin = 1 << 20, kHotWindowSizeMin = 512 << 10;
// Threads that work on windows far apart make disks seek. They also confuse a host below a virtual
// machine that reads ahead.
constexpr uint64_t kColdWindowSizeMax = 2 << 20;
// Callers that may read into device memory with their own executor. Its staging is pinned memory.
constexpr unsigned kDeviceCallersMax = 2;
// Callers that may move one window each with an executor of their own. That costs less than it
// costs to hand the window to a thread, and callers that wait for storage use no CPU.
constexpr unsigned kOneWindowCallersMax = 32;
// A thread that has just worked spins for this time before it sleeps: to wake a thread takes about
// as long, and one read often follows another.
constexpr uint64_t kSpinNs = 60'000;

thread_local bool own_thread = false;  // this is a thread of some engine

}  // namespace

class Engine::Core {
public:
    Core(std::shared_ptr<storage::Storage> storage, backend::Device* device, const Options& options)
        : storage_(std::move(storage)),
          device_(device),
          options_(options),
          scheduler_(options.threads),
          staged_ranges_(device),
          thread_executors_(options.threads),
          to_host_(*storage_, nullptr, nullptr, options.limits,
                   std::max(options.threads, kOneWindowCallersMax)),
          to_device_(*storage_, device, &staged_ranges_, options.limits,
                     std::min(options.threads, kDeviceCallersMax)) {
        unmade_.asleep = options.threads - 1;
    }

    [[nodiscard]] unsigned thread_count() const { return options_.threads; }
    [[nodiscard]] StagedRanges& ranges() { return staged_ranges_; }
    // Returns an executor for a caller that moves one window, or that shares a job's windows with
    // the threads; null if enough callers do.
    ThreadExecutorPool::Place* borrow(bool device_memory, bool one_window) {
        if (device_memory) return to_device_.borrow();
        return one_window ? to_host_.borrow() : to_host_.borrow(options_.threads);
    }

    // Makes the executor of a thread. The first thread's is made at once, so that the engine can
    // always work. The others, with their pinned memory, are made when they are needed.
    Status make(unsigned index) {
        auto made = ThreadExecutor::make(*storage_, device_, &staged_ranges_, options_.limits);
        if (!made.ok()) return made.status();
        thread_executors_[index] = std::move(made.value());
        return {};
    }

    void work(unsigned index) {
        own_thread = true;
        base::FileSizeSignal::block_for_good();
        if (index != 0 && !make_when_needed(index)) return;
        ThreadExecutor& executor = *thread_executors_[index];
        std::vector<const Source*> over;
        Callbacks deferred;
        bool spins = false;
        for (;;) {
            if (std::exchange(spins, false)) {
                (void)base::spin_until(kSpinNs, [this] {
                    return waiting_.load(std::memory_order_relaxed) != 0 || staged_ranges_.ready();
                });
                end_spin();
            }
            if (staged_ranges_.ready()) staged_ranges_.collect();
            bool more = true, no_staging = false;
            uint64_t spent_ns = 0;                            // time spent on windows held
            if (!executor.can_take()) have_copies_watched();  // else begin_turn() does it
            while (more && executor.can_take()) {
                const std::shared_ptr<Job> job = begin_turn(index, executor.idle());
                more = job != nullptr && take_turn(index, job, &spent_ns);
                no_staging = job != nullptr && !more;
            }
            if (executor.idle() && no_staging) {
                staged_ranges_.wait();
                continue;
            }
            if (executor.idle()) {
                const std::lock_guard lock(mutex_);
                if (stopping_ && scheduler_.waiting() == 0) return;
                continue;
            }
            const uint64_t begin_ns = base::coarse_ns();
            over.clear();
            executor.work(!more || !executor.has_copies(), &over);
            // Done before the jobs are told: a caller that waited publishes its next job at once,
            // and then need not wake another thread for it.
            spins = end_turns(index, over, begin_ns - spent_ns, executor.idle());
            executor.finish(&deferred);
            if (deferred.empty()) continue;
            // The callbacks may start jobs and may take long.
            if (std::exchange(spins, false)) break_off_spin();
            for (const auto& callback : deferred) callback();
            deferred.clear();
            const std::lock_guard lock(mutex_);
            spins = executor.idle() && begin_spin();
        }
    }

    void publish(const std::shared_ptr<Job>& job, unsigned threads) {
        std::unique_lock lock(mutex_);
        scheduler_.add(job, base::coarse_ns());
        wake(threads, std::move(lock));
    }
    // Re-queues a job whose windows were returned after it looked empty.
    void restore(const std::shared_ptr<Job>& job) {
        std::unique_lock lock(mutex_);
        scheduler_.restore(job);
        wake(1, std::move(lock));
    }

    // Retires `job` if it has no more windows to take. Otherwise a spinning thread would find it,
    // get nothing, and sleep.
    void retire_if_taken(const std::shared_ptr<Job>& job) {
        const std::lock_guard lock(mutex_);
        if (!job->has_windows()) scheduler_.retire(job);
        waiting_.store(scheduler_.waiting(), std::memory_order_relaxed);
        if (scheduler_.waiting() == 0) promised_ = 0;
    }

    // For a thread that may have begun copies and does not see them end. The thread that last
    // checked may have found none in flight, and sleeps.
    void have_copies_watched() {
        if (staged_ranges_.copying()) call_watcher(std::unique_lock(mutex_));
    }

    void stop() {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
            scheduler_.share_all();
        }
        made_.bell.notify_all();
        unmade_.bell.notify_all();
    }

private:
    // Counts of threads that sleep until they are needed.
    struct Sleepers {
        std::condition_variable bell;
        unsigned asleep = 0;  // and not woken yet
        unsigned woken = 0;

        unsigned wake(unsigned count) {
            count = std::min(count, asleep);
            asleep -= count;
            woken += count;
            return count;
        }
    };

    // Wakes `count` threads: first those that spin, then those that sleep, then those that have no
    // executor yet.
    void wake(unsigned count, std::unique_lock<std::mutex> lock) {
        waiting_.store(scheduler_.waiting(), std::memory_order_relaxed);
        count = std::min(count, options_.threads);
        const unsigned spinning = std::min(count, spinning_ - promised_);
        promised_ += spinning;
        count -= spinning;
        const unsigned made = made_.wake(count), unmade = unmade_.wake(count - made);
        lock.unlock();
        for (unsigned i = 0; i < made; ++i) made_.bell.notify_one();
        for (unsigned i = 0; i < unmade; ++i) unmade_.bell.notify_one();
    }

    // Requires mutex_. Lets this thread spin; it must call begin_turn() next. Returns false if
    // enough threads spin already: a CPU is left for the thread that publishes jobs.
    bool begin_spin() {
        if (spinning_ + 1 >= std::max(2u, options_.threads)) return false;
        ++spinning_;
        return true;
    }
    void end_spin() {
        const std::lock_guard lock(mutex_);
        --spinning_;
        if (promised_ > 0) --promised_;
    }
    // Called by a spinning thread that does something else first.
    void break_off_spin() {
        std::unique_lock lock(mutex_);
        --spinning_;
        if (promised_ <= spinning_) return call_watcher(std::move(lock));
        --promised_;
        wake(1, std::move(lock));
    }

    // Wakes a thread if no thread watches the copies in flight. A thread that spins, or that was
    // woken and has not arrived, watches them or wakes another one: begin_turn().
    void call_watcher(std::unique_lock<std::mutex> lock) {
        if (staged_ranges_.copying() && !watching_ && spinning_ + made_.woken + unmade_.woken == 0)
            wake(1, std::move(lock));
    }

    // Returns false if the engine stops.
    bool make_when_needed(unsigned index) {
        std::unique_lock lock(mutex_);
        for (;;) {
            unmade_.bell.wait(lock, [this] { return stopping_ || unmade_.woken > 0; });
            if (stopping_) return false;
            --unmade_.woken;
            lock.unlock();
            if (make(index).ok()) return true;
            lock.lock();
            ++unmade_.asleep;  // threads with an executor get the work for which it was woken
            if (made_.wake(1) != 0) made_.bell.notify_one();
        }
    }

    // Returns null if there is no job for this thread; with `wait`, only if the engine stops.
    std::shared_ptr<Job> begin_turn(unsigned index, bool wait) {
        std::unique_lock lock(mutex_);
        for (;;) {
            std::shared_ptr<Job> job = scheduler_.begin(index, base::coarse_ns());
            if (job != nullptr || !wait || stopping_) {
                call_watcher(std::move(lock));  // the caller may be busy for long
                return job;
            }
            if (staged_ranges_.copying() && !watching_) {
                watching_ = true;
                lock.unlock();
                staged_ranges_.wait();
                lock.lock();
                watching_ = false;
                continue;
            }
            ++made_.asleep;
            const auto called = [this] { return stopping_ || made_.woken > 0; };
            if (scheduler_.waiting() == 0) {
                made_.bell.wait(lock, called);
            } else {  // a job of a slow source; this thread is reserved for others
                made_.bell.wait_for(lock, std::chrono::nanoseconds(JobScheduler::kSharedForNs),
                                    called);
            }
            --(made_.woken > 0 ? made_.woken : made_.asleep);
        }
    }

    // Returns false if the thread must wait for a staged range. If the turn lasts until
    // ThreadExecutor::work() ends it, adds the time of this call to `spent_ns`.
    bool take_turn(unsigned index, const std::shared_ptr<Job>& job, uint64_t* spent_ns) {
        const uint64_t begin_ns = base::coarse_ns();
        const ThreadExecutor::Taken taken = thread_executors_[index]->take(job);
        const uint64_t now_ns = base::coarse_ns();
        retire_if_taken(job);
        if (taken == ThreadExecutor::Taken::kHeld) {
            *spent_ns += now_ns - begin_ns;
            return true;
        }
        std::unique_lock lock(mutex_);
        if (taken == ThreadExecutor::Taken::kPutBack) scheduler_.restore(job);
        scheduler_.end(index, &job->source(), now_ns - begin_ns, now_ns);
        wake(taken == ThreadExecutor::Taken::kPutBack ? 1 : 0, std::move(lock));
        return taken != ThreadExecutor::Taken::kNoStaging;
    }

    // Ends the turns at the sources in `over`. If the thread is now `idle`, returns whether it
    // spins for more work.
    bool end_turns(unsigned index, const std::vector<const Source*>& over, uint64_t begin_ns,
                   bool idle) {
        if (over.empty()) return false;
        const uint64_t now_ns = base::coarse_ns();
        const std::lock_guard lock(mutex_);
        for (const Source* source : over) scheduler_.end(index, source, now_ns - begin_ns, now_ns);
        return idle && begin_spin();
    }

    const std::shared_ptr<storage::Storage> storage_;
    backend::Device* const device_;
    const Options options_;

    std::mutex mutex_;  // guards the seven members below
    JobScheduler scheduler_;
    Sleepers made_, unmade_;  // threads with an executor, and without
    bool watching_ = false;   // an idle thread watches the copies of staged ranges
    bool stopping_ = false;
    // spinning_: threads that spin. promised_: how many of them are to take a job that no thread
    // has taken yet.
    unsigned spinning_ = 0, promised_ = 0;

    StagedRanges staged_ranges_;

    std::atomic<size_t> waiting_{0};  // jobs; read by threads that spin
    std::vector<std::unique_ptr<ThreadExecutor>> thread_executors_;  // each for its own thread
    ThreadExecutorPool to_host_, to_device_;  // for callers; to_host_ needs no device staging
};

Result<std::unique_ptr<Engine>> Engine::create(const std::shared_ptr<storage::Storage>& storage,
                                               backend::Device* device, const Options& options) {
    if (options.threads < 1 || options.threads > kThreadsMax) {
        return Status{EINVAL, "threads", "must be from 1 to 64"};
    }
    auto core = std::make_shared<Core>(storage, device, options);
    if (Status status = core->make(0); !status.ok()) return status;
    std::unique_ptr<Engine> engine(new Engine(core));
    try {
        for (unsigned i = 0; i < options.threads; ++i) {
            engine->threads_.emplace_back([core, i] { core->work(i); });
        }
    } catch (const std::system_error&) {
        return Status{EAGAIN, "threads", "no more threads are to be had"};
    }
    return engine;
}

Engine::~Engine() {
    core_->stop();
    PENSTOCK_CHECK(!on_own_thread(), "an engine's thread cannot wait for itself");
    for (std::thread& thread : threads_) thread.join();
}

bool Engine::on_own_thread() { return own_thread; }

void Engine::start(const std::shared_ptr<Job>& job) {
    if (job->done()) return;
    core_->publish(job, job->append() ? 1 : static_cast<unsigned>(job->window_count()));
}

void Engine::run(const std::shared_ptr<Job>& job) {
    if (job->done()) return;
    StagedRanges& ranges = core_->ranges();
    const uint64_t windows = job->append() ? 1 : job->window_count();
    ThreadExecutorPool::Place* place = core_->borrow(job->device_memory(), windows == 1);
    if (place == nullptr || windows > 1) {
        const uint64_t others = windows - (place != nullptr ? 1 : 0);
        // With the caller there are as many threads as CPUs. One more would only take turns with
        // it.
        const unsigned help = std::max(1u, core_->thread_count() - (place != nullptr ? 1 : 0));
        core_->publish(job, static_cast<unsigned>(std::min<uint64_t>(others, help)));
    }
    if (place != nullptr) {
        ThreadExecutor& executor = *place->thread_executor;
        for (;;) {
            if (ranges.ready()) ranges.collect();
            bool more = true, no_staging = false;
            while (more && executor.can_take()) {
                const ThreadExecutor::Taken taken = executor.take(job);
                if (taken == ThreadExecutor::Taken::kPutBack) core_->restore(job);
                no_staging = taken == ThreadExecutor::Taken::kNoStaging;
                more = taken != ThreadExecutor::Taken::kNothing && !no_staging;
            }
            if (executor.idle() && no_staging) {
                ranges.wait();
                continue;
            }
            if (executor.idle()) break;
            core_->have_copies_watched();
            executor.work(!more || !executor.has_copies(), nullptr);
            executor.finish();
        }
        ThreadExecutorPool::give_back(place);
        if (windows > 1) core_->retire_if_taken(job);
    }
    for (;;) {
        const bool seen = base::spin_until(kSpinNs, [&] { return job->done() || ranges.ready(); });
        if (job->done()) return core_->have_copies_watched();
        // Possibly no other thread watches the copies that this thread began.
        if (!ranges.copying()) break;
        if (seen) {
            ranges.collect();
        } else {
            ranges.wait();
        }
    }
    while (!job->wait(std::chrono::hours(1))) {
    }
}

bool Engine::move_small(Source& source, const Piece& piece, bool write, const ReadOptions& options,
                        SmallOutcome* out, uint64_t* begun_ns) {
    ThreadExecutorPool::Place* place = core_->borrow(false, true);
    if (place == nullptr) return false;
    if (begun_ns != nullptr) *begun_ns = base::monotonic_ns();
    const iovec memory{piece.to, piece.size};
    Executor& executor = place->thread_executor->executor();
    *out = executor.move_small(source, piece.offset, memory, write, options);
    ThreadExecutorPool::give_back(place);
    return true;
}

uint64_t Engine::window_size(uint64_t size, bool hot, bool with_caller, bool device_memory) const {
    const unsigned threads = core_->thread_count();
    // A single thread shares with no other thread, and plans best over the whole read.
    const bool shared = threads > 1 || with_caller;
    const uint64_t share = shared ? size / (2 * threads) : size;
    const uint64_t least = hot ? kHotWindowSizeMin : kWindowSizeMin;
    // Missing bytes are read from disk nearly in the file's order. Cached bytes that go to a device
    // use staged ranges.
    uint64_t most = kRequestSizeMax;
    if (device_memory) {
        most = kWindowSizeMin;
    } else if (shared && !hot) {
        most = kColdWindowSizeMax;
    }
    return std::clamp(base::align_up(share, least), least, most);
}

}  // namespace penstock::transfer
