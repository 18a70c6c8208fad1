// A context of the device, and every call made in it. The primary one is that of the CUDA run-time
// library and of PyTorch; a second one is ours alone (docs/design/0012-second-context.md).
//
// Makes the context current for the length of a call and puts back what the thread had: user
// threads may be at work on another GPU. No call breaks a stream capture that the program has under
// way. Remembers what failed last, and for good the first fault of a kernel. Any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "backend/cuda/driver.h"
#include "backend/cuda/errors.h"
#include "penstock/status.h"

namespace penstock::backend::cuda {

class Context {
public:
    // The primary context.
    static Result<std::unique_ptr<Context>> retain(const Driver& driver, DeviceHandle device);
    // A context beside it: calls in it do not wait for those that the program makes in its own.
    // Costs 0.1 to 0.2 s and some 500 MiB of device memory.
    static Result<std::unique_ptr<Context>> create(const Driver& driver, DeviceHandle device);
    // Leaves the context retained when `leave()` was called: something in it could not be brought
    // to an end.
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    [[nodiscard]] const Driver& driver() const { return driver_; }
    [[nodiscard]] DeviceHandle device() const { return device_; }
    [[nodiscard]] bool is_primary() const { return primary_; }

    // Calls a function of the driver in this context. A failure is remembered for diagnosis().
    template <class... Parameters, class... Arguments>
    Status call(const Call<Parameters...>& function, Arguments... arguments) {
        const int code = raw(function, arguments...);
        return code == kSuccess ? Status() : failed(code, function.name, driver_.describe(code));
    }

    // The same, for callers to which some codes are no failures (CUDA_ERROR_NOT_READY).
    template <class... Parameters, class... Arguments>
    int raw(const Call<Parameters...>& function, Arguments... arguments) {
        return within([&] { return function(arguments...); });
    }

    // Runs `work`, which returns a CUresult or cudaError_t, with this context current.
    template <class Work>
    int within(Work work) {
        int mode = kCaptureModeRelaxed;
        if (const int code = driver_.exchange_capture_mode(&mode); code != kSuccess) return code;
        const int result = within_context(work);
        const int restored = driver_.exchange_capture_mode(&mode);
        return result != kSuccess ? result : restored;
    }

    // Remembers a failure and gives its Status. `description` is for people: the CUresult's name
    // and text.
    Status failed(int code, const char* origin, const std::string& description);

    // What a fault's diagnosis names: the kernels in flight. Set once, before the first launch.
    void name_kernels_by(std::function<std::string()> names) { names_ = std::move(names); }
    // A sentence about what failed, without a CUDA call behind it.
    void note(std::string text);
    [[nodiscard]] std::string diagnosis() const;

    // From now on nothing is launched and waits end with `cause`; the first cause stays.
    void abort(Status cause);
    [[nodiscard]] Status abort_cause() const;  // ok: not aborted

    void leave() { leave_ = true; }

private:
    Context(const Driver& driver, DeviceHandle device, ContextHandle handle, bool primary)
        : driver_(driver), device_(device), handle_(handle), primary_(primary) {}

    template <class Work>
    int within_context(Work& work) {
        ContextHandle before = nullptr;
        if (const int code = driver_.get_current(&before); code != kSuccess) return code;
        if (before == handle_) return work();
        if (const int code = driver_.set_current(handle_); code != kSuccess) return code;
        const int result = work();
        const int restored = driver_.set_current(before);
        return result != kSuccess ? result : restored;
    }

    const Driver& driver_;
    const DeviceHandle device_;
    const ContextHandle handle_;
    const bool primary_;
    bool leave_ = false;
    std::function<std::string()> names_;
    mutable std::mutex mutex_;
    std::string diagnosis_;
    Status abort_cause_;
    std::atomic<bool> aborted_{false};
    bool faulted_ = false;  // diagnosis_ names a kernel's fault and stays
};

}  // namespace penstock::backend::cuda
