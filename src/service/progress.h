// What a worker does and has done, as the monitor and the callers of counters() see it.
//
// One thread at a time writes; any thread reads.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>

namespace penstock::service {

// A counter. One thread at a time adds to it, and any thread may read it. Relaxed.
class Count {
public:
    void add(uint64_t more) { value_.store(load() + more, std::memory_order_relaxed); }
    [[nodiscard]] uint64_t load() const { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<uint64_t> value_{0};
};

// Each worker has its own counters. On a cache line that all workers write, they would cost some
// cache misses per window.
struct alignas(64) Counters {
    Count requests, demanded, reads, bytes, calls, failed_pages;
    Count storage_ns, serving_ns;  // serving without the time in planning and in storage calls
    Count writes, bytes_written, failed_writes;

    void add(const Counters& other) {
        for (const auto count : {&Counters::requests, &Counters::demanded, &Counters::reads,
                                 &Counters::bytes, &Counters::calls, &Counters::failed_pages,
                                 &Counters::storage_ns, &Counters::serving_ns, &Counters::writes,
                                 &Counters::bytes_written, &Counters::failed_writes})
            (this->*count).add((other.*count).load());
    }
};

// What a worker is doing, for the monitor.
enum class Activity : uint32_t {
    kIdle,     // holds no requests
    kServing,  // holds requests; must make progress
    kStorage,  // inside a storage or driver call: counts as alive throughout
    kCall,     // answers a control call, which may be inside open(2)
};

// Ends all waits of all kernels, because completions can no longer be trusted.
using Abort = std::function<void(int error_number, const char* text)>;

class Progress {
public:
    explicit Progress(const Abort& abort) : abort_(abort) {}

    // Sets the activity until the end of the scope.
    class [[nodiscard]] During {
    public:
        During(Progress& progress, Activity activity)
            : progress_(progress), before_(progress.activity()) {
            progress_.activity_.store(activity, std::memory_order_release);
        }
        ~During() { progress_.activity_.store(before_, std::memory_order_release); }
        During(const During&) = delete;
        During& operator=(const During&) = delete;

    private:
        Progress& progress_;
        const Activity before_;
    };
    [[nodiscard]] Activity activity() const { return activity_.load(std::memory_order_acquire); }

    // Counts a step forward.
    void beat() { beats_.add(1); }
    [[nodiscard]] uint64_t beats() const { return beats_.load(); }

    // Stops the worker for good, and ends all waits of all kernels.
    void fail(const char* text) {
        abort_(EIO, text);
        stopped_.store(true, std::memory_order_relaxed);
    }
    // A fault for tests: the worker stops while it holds requests.
    void stop_with_requests() {
        activity_.store(Activity::kServing, std::memory_order_release);
        stopped_.store(true, std::memory_order_relaxed);
    }
    [[nodiscard]] bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

    Counters counters;

private:
    const Abort& abort_;
    std::atomic<Activity> activity_{Activity::kIdle};
    Count beats_;
    std::atomic<bool> stopped_{false};
};

}  // namespace penstock::service
