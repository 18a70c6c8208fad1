#include "transfer/engine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/units.h"

namespace penstock::transfer {
namespace {

// Below it direct transfers get too short; copies may be shared out in smaller parts.
constexpr uint64_t kWindowSizeMin = 1 << 20, kHotWindowSizeMin = 512 << 10;
constexpr size_t kSmallBatch = 32;  // small windows that are taken at once
// A thread that has just worked looks out for more so long before it sleeps: waking one up takes
// about as long, and reads often come one behind another.
constexpr uint64_t kLookoutNs = 60'000;

thread_local bool own_thread = false;  // of some engine

// Until `ready` or the time is over; whether it is ready.
template <class Ready>
bool look_out(const Ready& ready) {
    const uint64_t end = base::monotonic_ns() + kLookoutNs;
    do {
        for (int i = 0; i < 32; ++i) {
            if (ready()) return true;
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
    } while (base::monotonic_ns() < end);
    return false;
}

}  // namespace

// An executor and the windows that it works on. One thread at a time.
class Hands {
public:
    explicit Hands(std::unique_ptr<Executor> executor, uint32_t requests)
        : executor_(std::move(executor)), held_(requests) {
        for (uint32_t i = 0; i < requests; ++i) free_.push_back(i);
        outcomes_.resize(requests);
    }

    [[nodiscard]] bool idle() const { return executor_->outstanding() == 0; }
    [[nodiscard]] bool hungry() const { return executor_->has_room() && !executor_->has_copies(); }
    [[nodiscard]] bool has_copies() const { return executor_->has_copies(); }
    Executor& executor() { return *executor_; }

    // Takes windows of `job`; false: it has none left.
    bool take(const std::shared_ptr<Job>& job) {
        Window window;
        const bool small = is_small(job->window_size_max(), job->options()) &&
                           !job->device_memory();
        if (idle() && small) return take_small(*job);
        if (job->take({&window, 1}) == 0) return false;
        const uint32_t index = free_.back();
        free_.pop_back();
        Held& held = held_[index];
        const Piece& piece = job->piece(window.piece);
        held.job = job;
        held.window = window;
        held.report = {};
        held.piece = {static_cast<std::byte*>(piece.to) + window.begin, window.size};
        Request request;
        request.source = &job->source();
        request.offset = piece.offset + window.begin;
        request.size = window.size;
        request.pieces = {&held.piece, 1};
        request.device_memory = job->device_memory();
        request.options = job->options();
        request.report = &held.report;
        request.cookie = index;
        (void)executor_->submit(request);  // there is room: take() is called only then
        return true;
    }

    // Works on what has been taken until some of it is over; without `wait` only as long as there
    // is something to do.
    void work(bool wait) {
        const size_t count = executor_->reap(outcomes_, wait);
        for (size_t i = 0; i < count; ++i) {
            Held& held = held_[outcomes_[i].cookie];
            const std::shared_ptr<Job> job = std::move(held.job);
            const Window window = held.window;
            const Report report = held.report;
            free_.push_back(static_cast<uint32_t>(outcomes_[i].cookie));
            job->finish({&window, 1}, {&outcomes_[i], 1}, report);
        }
    }

private:
    struct Held {
        std::shared_ptr<Job> job;
        Window window;
        iovec piece{};
        Report report;
    };

    // Small pieces, many at once: a lock for each would cost as much as some of the reads.
    bool take_small(Job& job) {
        std::array<Window, kSmallBatch> windows;
        std::array<Outcome, kSmallBatch> outcomes;
        const size_t count = job.take(windows);
        if (count == 0) return false;
        Report report;
        for (size_t i = 0; i < count; ++i) {
            const Piece& piece = job.piece(windows[i].piece);
            const iovec to{static_cast<std::byte*>(piece.to) + windows[i].begin, windows[i].size};
            const uint64_t offset = piece.offset + windows[i].begin;
            const SmallOutcome outcome = executor_->read_small(job.source(), offset, to,
                                                               job.options());
            add_to(&report, offset, outcome);
            outcomes[i] = {0, outcome.completion.bytes, outcome.completion.error};
        }
        job.finish({windows.data(), count}, {outcomes.data(), count}, report);
        return true;
    }

    const std::unique_ptr<Executor> executor_;
    std::vector<Held> held_;
    std::vector<uint32_t> free_;
    std::vector<Outcome> outcomes_;
};

class Engine::Core {
public:
    // Executors for callers too: as many as may do their part at once.
    Status create(storage::Storage& storage, backend::Device* device, const Options& options) {
        for (unsigned i = 0; i < 2 * options.threads; ++i) {
            auto executor = Executor::create(storage, device, options.limits);
            if (!executor.ok()) return executor.status();
            hands_.push_back(
                std::make_unique<Hands>(std::move(executor.value()), options.limits.requests));
        }
        thread_count_ = options.threads;
        borrowed_ = std::make_unique<std::atomic_flag[]>(options.threads);
        return {};
    }

    [[nodiscard]] unsigned thread_count() const { return thread_count_; }

    void work(unsigned index) {
        own_thread = true;
        Hands& hands = *hands_[index];
        bool worked = false;
        for (;;) {
            if (worked && hands.idle()) {
                lookouts_.fetch_add(1, std::memory_order_relaxed);
                (void)look_out([this] { return waiting_.load(std::memory_order_relaxed) != 0; });
                lookouts_.fetch_sub(1, std::memory_order_relaxed);
            }
            worked = true;
            bool more = true;
            while (hands.hungry()) {
                const std::shared_ptr<Job> job = next(hands.idle());
                more = job != nullptr;
                if (!more) break;
                if (!hands.take(job)) retire(job);
            }
            if (hands.idle()) {
                const std::lock_guard lock(mutex_);
                if (stopping_ && jobs_.empty()) return;
                continue;
            }
            hands.work(!more || !hands.has_copies());
        }
    }

    void publish(const std::shared_ptr<Job>& job, unsigned threads) {
        {
            const std::lock_guard lock(mutex_);
            jobs_.push_back(job);
            waiting_.store(jobs_.size(), std::memory_order_relaxed);
        }
        // Those who look out need not be woken.
        const unsigned awake = lookouts_.load(std::memory_order_relaxed);
        for (unsigned i = awake; i < std::min(threads, thread_count_); ++i) changed_.notify_one();
    }

    // Null: all are borrowed.
    Hands* borrow(unsigned* index) {
        for (unsigned i = 0; i < thread_count_; ++i) {
            if (borrowed_[i].test_and_set(std::memory_order_acquire)) continue;
            *index = i;
            return hands_[thread_count_ + i].get();
        }
        return nullptr;
    }
    void give_back(unsigned index) { borrowed_[index].clear(std::memory_order_release); }

    void stop() {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        changed_.notify_all();
    }

private:
    // The oldest job; null: there is none. `wait`: only when told to stop.
    std::shared_ptr<Job> next(bool wait) {
        std::unique_lock lock(mutex_);
        if (wait) changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
        return jobs_.empty() ? nullptr : jobs_.front();
    }
    // Nothing of `job` is left to take.
    void retire(const std::shared_ptr<Job>& job) {
        const std::lock_guard lock(mutex_);
        const auto at = std::find(jobs_.begin(), jobs_.end(), job);
        if (at != jobs_.end()) jobs_.erase(at);
        waiting_.store(jobs_.size(), std::memory_order_relaxed);
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::shared_ptr<Job>> jobs_;  // with windows that nobody has taken, oldest first
    std::atomic<unsigned> lookouts_{0};
    std::atomic<size_t> waiting_{0};  // how many; for threads that look out
    bool stopping_ = false;
    unsigned thread_count_ = 0;
    std::vector<std::unique_ptr<Hands>> hands_;  // the threads', then the callers'
    std::unique_ptr<std::atomic_flag[]> borrowed_;
};

Result<std::unique_ptr<Engine>> Engine::create(const std::shared_ptr<storage::Storage>& storage,
                                               backend::Device* device, const Options& options) {
    if (options.threads < 1 || options.threads > kThreadsMax) {
        return Status{EINVAL, "threads", "must be from 1 to 64"};
    }
    auto core = std::make_shared<Core>();
    if (Status status = core->create(*storage, device, options); !status.ok()) return status;
    std::unique_ptr<Engine> engine(new Engine(core));
    try {
        for (unsigned i = 0; i < options.threads; ++i) {
            engine->threads_.emplace_back([core, storage, i] { core->work(i); });
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
    if (!job->done()) core_->publish(job, static_cast<unsigned>(job->window_count()));
}

void Engine::run(const std::shared_ptr<Job>& job) {
    if (job->done()) return;
    unsigned index = 0;
    Hands* hands = core_->borrow(&index);
    const uint64_t windows = job->window_count();
    if (hands == nullptr || windows > 1) {
        const uint64_t others = windows - (hands != nullptr ? 1 : 0);
        // With the caller as many threads as CPUs: one more would only take turns with it.
        const unsigned help = std::max(1u, core_->thread_count() - (hands != nullptr ? 1 : 0));
        core_->publish(job, static_cast<unsigned>(std::min<uint64_t>(others, help)));
    }
    if (hands != nullptr) {
        for (;;) {
            bool more = true;
            while (more && hands->hungry()) more = hands->take(job);
            if (hands->idle()) break;
            hands->work(!more || !hands->has_copies());
        }
        core_->give_back(index);
    }
    if (look_out([&job] { return job->done(); })) return;
    while (!job->wait(std::chrono::hours(1))) {
    }
}

bool Engine::read_small(Source& source, uint64_t offset, const iovec& to,
                        const ReadOptions& options, SmallOutcome* out) {
    unsigned index = 0;
    Hands* hands = core_->borrow(&index);
    if (hands == nullptr) return false;
    *out = hands->executor().read_small(source, offset, to, options);
    core_->give_back(index);
    return true;
}

uint64_t Engine::window_size(uint64_t size, bool hot) const {
    const uint64_t share = size / (2 * core_->thread_count());
    const uint64_t least = hot ? kHotWindowSizeMin : kWindowSizeMin;
    return std::clamp(base::align_up(share, least), least, kRequestSizeMax);
}

}  // namespace penstock::transfer
