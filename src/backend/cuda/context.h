// A context of the device, and all calls made in it. The primary context belongs to the CUDA
// run-time library and PyTorch too. A second one is used only here
// (docs/design/0012-second-context.md).
//
// A call makes the context current and then restores the thread's previous one, because user
// threads may use another GPU. No call breaks a stream capture of the program. The object remembers
// the last failure, and permanently the first fault of a kernel. Any thread.
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
    // Retains the primary context.
    static Result<std::unique_ptr<Context>> retain(const Driver& driver, DeviceHandle device);
    // Makes a second context. Calls in it do not wait for the program's calls in its own. It costs
    // 0.1 to 0.2 s and some 500 MiB of device memory.
    static Result<std::unique_ptr<Context>> create(const Driver& driver, DeviceHandle device);
    // Releases the context, unless `leave()` was called because something in it could not be ended.
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

    // Does the same for callers to which some codes are no failures (CUDA_ERROR_NOT_READY).
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

    // Remembers a failure and returns its Status. `description` has the CUresult's name and text.
    Status failed(int code, const char* origin, const std::string& description);

    // Sets the function that names the kernels in flight in a fault's diagnosis. Set it once,
    // before the first launch.
    void name_kernels_by(std::function<std::string()> names) { names_ = std::move(names); }
    // Remembers a sentence about a failure that no CUDA call returned.
    void note(std::string text);
    [[nodiscard]] std::string diagnosis() const;

    // Prevents further launches and ends waits with `cause`. The first cause is kept.
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
    bool faulted_ = false;  // diagnosis_ names a kernel's fault and no longer changes
};

}  // namespace penstock::backend::cuda
