// One stream of a device: its launches, copies and stream-ordered stores, and whether its kernels
// are in flight.
//
// No lock is held during a call of the driver, except the locks that order launches and
// announcements of the same stream. A launch may block in the driver, and the threads that serve
// the running kernel must not wait for it. Any thread.
//
// Launches are counted thrice; kernels are in flight while begun != done:
//   begun_     before the driver is called          written under launch_mutex_
//   enqueued_  after it has taken the launch        written under launch_mutex_
//   done_      the stream was idle after so many    raised by whoever sees the stream idle
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/context.h"
#include "backend/cuda/kernels.h"

namespace penstock::backend::cuda {

// Limit of launches of one stream in flight. After 1,024 operations the driver itself blocks, with
// its locks held. So a launch beyond this limit waits here, without a lock.
inline constexpr uint64_t kLaunchesInFlightMax = 512;

class Stream {
public:
    // Makes a stream. Larger priorities start first; they are clamped to what the device offers.
    static Result<std::unique_ptr<Stream>> create(Context& context, int priority);
    ~Stream();

    [[nodiscard]] int priority() const { return priority_; }
    [[nodiscard]] bool is_of(const Context& context) const { return &context == &context_; }

    Status launch(const Kernel& kernel, const LaunchRequest& request);
    Status copy(void* to, const void* from, size_t size);
    Status copy_all(std::span<const CopyPart> parts);
    Status fill(void* to, uint8_t value, size_t size);
    Status write_value(uint64_t* address, uint64_t value);
    Status announce(uint64_t* address, uint64_t value);

    // Looks once whether the stream is idle. It also keeps the driver making progress.
    Status query(bool* idle);
    // Looks until the stream is idle. ETIMEDOUT: not idle at `deadline`. After an abort of the
    // device its blocks end at their next wait, and the result is the cause of the abort, idle or
    // not.
    Status synchronize(Deadline deadline);
    // Asks the driver only if kernels were in flight. A stream in error has no kernels in flight.
    [[nodiscard]] bool kernels_in_flight();
    // Returns the same as of the last look, and asks no driver.
    [[nodiscard]] bool kernels_seen_in_flight() const {
        return begun_.load(std::memory_order_acquire) != done_.load(std::memory_order_relaxed);
    }
    // Sets whether kernels wait for what this stream copies.
    void serve_kernels(bool serves) { serves_kernels_.store(serves, std::memory_order_relaxed); }
    [[nodiscard]] bool serves_kernels() const {
        return serves_kernels_.load(std::memory_order_relaxed);
    }
    // Returns when the driver's call in progress began; 0: there is none. If several threads call
    // at once, it is one of their calls.
    [[nodiscard]] uint64_t call_since_ns() const {
        return call_since_ns_.load(std::memory_order_relaxed);
    }
    // Returns the keys of launches that are not known to be complete: oldest first, separated by ",
    // ", at most eight.
    [[nodiscard]] std::string kernels_not_done() const;

private:
    Stream(Context& context, StreamHandle handle, int priority)
        : context_(context),
          handle_(handle),
          priority_(priority),
          small_by_rows_(!context.is_primary()) {}

    // Calls a function of the driver, and records the start time until it returns.
    template <class... Parameters, class... Arguments>
    Status call(const Call<Parameters...>& function, Arguments... arguments) {
        const Under under(*this);
        return context_.call(function, arguments...);
    }
    class Under {
    public:
        explicit Under(Stream& stream);
        ~Under();
        Under(const Under&) = delete;
        Under& operator=(const Under&) = delete;

    private:
        Stream& stream_;
        uint64_t since_ns_;
    };

    bool is_device_memory(const void* address);
    Status copy_small(void* to, const void* from, size_t size);
    Status copy_parts(std::span<const CopyPart> parts);
    Status make_room();
    Status wait_for_kernels();
    Status wait_idle(Deadline deadline, bool until_abort);
    Status look(StreamHandle handle, bool* idle);
    Status make_announcer();

    Context& context_;
    const StreamHandle handle_;
    const int priority_;
    const bool small_by_rows_;  // see copy_small
    std::mutex launch_mutex_;
    // Also held during calls of the driver, but only by threads that announce on this stream.
    std::mutex announce_mutex_;
    std::atomic<StreamHandle> announcer_{nullptr};  // its stores wait for this stream's work
    EventHandle event_ = nullptr;
    std::atomic<uint64_t> begun_{0}, enqueued_{0}, done_{0};
    std::atomic<bool> serves_kernels_{false};
    std::atomic<uint64_t> call_since_ns_{0};
    std::array<std::atomic<const char*>, kLaunchesInFlightMax> keys_{};  // launch n: slot n % max
};

}  // namespace penstock::backend::cuda
