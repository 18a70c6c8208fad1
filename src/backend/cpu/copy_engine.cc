#include "backend/cpu/copy_engine.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/backend.h"
#include "backend/cpu/parking.h"

namespace penstock::backend::cpu {
namespace {

bool is_words(const CopyJob& job) {
    const uintptr_t any = reinterpret_cast<uintptr_t>(job.to) |
                          reinterpret_cast<uintptr_t>(job.from) | job.size;
    return job.size <= Device::kWholeSizeMax && any % sizeof(uint64_t) == 0;
}

// The partner is the acquire load of the thread that waits for a word.
void store_word(uint64_t* address, uint64_t value) {
    __atomic_store_n(address, value, __ATOMIC_RELEASE);
    notify_addresses(address, 1);
}

void copy_words(const CopyJob& job) {
    auto* to = static_cast<uint64_t*>(job.to);
    const auto* from = static_cast<const uint64_t*>(job.from);
    for (size_t i = 0; i < job.size / sizeof(uint64_t); ++i)
        store_word(to + i, __atomic_load_n(from + i, __ATOMIC_ACQUIRE));
}

}  // namespace

void do_copy_job(const CopyJob& job) {
    switch (job.kind) {
        case CopyJob::Kind::kCopy:
            if (is_words(job)) {
                copy_words(job);
            } else if (job.torn) {
                const base::TornReads torn;
                std::memcpy(job.to, job.from, job.size);
            } else {
                std::memcpy(job.to, job.from, job.size);
            }
            break;
        case CopyJob::Kind::kCopyWords:
            copy_words(job);
            break;
        case CopyJob::Kind::kFill:
            std::memset(job.to, static_cast<int>(job.value), job.size);
            break;
        case CopyJob::Kind::kWriteValue:
            store_word(static_cast<uint64_t*>(job.to), job.value);
            break;
    }
}

CopyEngine::CopyEngine(LinkModel link) : link_(link), thread_([this] { serve(); }) {}

CopyEngine::~CopyEngine() {
    {
        std::lock_guard lock(mutex_);
        closing_ = true;
    }
    changed_.notify_one();
    thread_.join();
}

void CopyEngine::submit(const CopyJob& job, std::function<void()> done) {
    {
        std::lock_guard lock(mutex_);
        waiting_.push_back({job, std::move(done), {}});
    }
    changed_.notify_one();
}

// Returns when the link has delivered a job that begins now.
CopyEngine::Clock::time_point CopyEngine::arrival(const CopyJob& job) {
    auto in_ns = [](double ns) { return std::chrono::nanoseconds(static_cast<int64_t>(ns)); };
    size_t size = job.kind == CopyJob::Kind::kWriteValue ? sizeof(uint64_t) : job.size;
    link_free_at_ = std::max(link_free_at_, Clock::now());
    if (link_.bandwidth_gbs > 0)
        link_free_at_ += in_ns(static_cast<double>(size) / link_.bandwidth_gbs);
    return link_free_at_ + in_ns(link_.latency_us * 1000);
}

void CopyEngine::serve() {
    // The default slack of 50 us exceeds most modelled latencies.
    prctl(PR_SET_TIMERSLACK, 1000ul);
    std::unique_lock lock(mutex_);
    for (;;) {
        if (closing_) return;
        bool arrived = !on_the_way_.empty() && on_the_way_.front().arrives <= Clock::now();
        if (arrived || (!waiting_.empty() && !link_.on())) {
            auto& queue = arrived ? on_the_way_ : waiting_;
            Entry entry = std::move(queue.front());
            queue.pop_front();
            lock.unlock();
            // The bytes appear on arrival and not before: a reader must not see them early.
            do_copy_job(entry.job);
            entry.done();
            lock.lock();
        } else if (!waiting_.empty()) {
            Entry entry = std::move(waiting_.front());
            waiting_.pop_front();
            entry.arrives = arrival(entry.job);
            on_the_way_.push_back(std::move(entry));
        } else if (!on_the_way_.empty()) {
            changed_.wait_until(lock, on_the_way_.front().arrives);
        } else {
            changed_.wait(lock);
        }
    }
}

}  // namespace penstock::backend::cpu
