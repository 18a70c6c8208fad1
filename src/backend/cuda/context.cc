#include "backend/cuda/context.h"

#include "base/kept_text.h"

namespace penstock::backend::cuda {

Result<std::unique_ptr<Context>> Context::retain(const Driver& driver, DeviceHandle device) {
    ContextHandle handle = nullptr;
    if (const int code = driver.primary_retain(&handle, device); code != kSuccess) {
        return status_of(code, driver.primary_retain.name);
    }
    return std::unique_ptr<Context>(new Context(driver, device, handle, true));
}

Result<std::unique_ptr<Context>> Context::create(const Driver& driver, DeviceHandle device) {
    ContextHandle handle = nullptr, popped = nullptr;
    constexpr unsigned kNoFlags = 0;
    if (const int code = driver.context_create(&handle, kNoFlags, device); code != kSuccess) {
        return status_of(code, driver.context_create.name);
    }
    std::unique_ptr<Context> context(new Context(driver, device, handle, false));
    // The driver has made the context current on this thread.
    if (const int code = driver.context_pop(&popped); code != kSuccess) {
        return status_of(code, driver.context_pop.name);
    }
    return context;
}

Context::~Context() {
    if (leave_) return;
    // Fails only if the driver is shutting down with the process. Nothing is left to do then.
    static_cast<void>(primary_ ? driver_.primary_release(device_)
                               : driver_.context_destroy(handle_));
}

Status Context::failed(int code, const char* origin, const std::string& description) {
    const bool fault = is_kernel_fault(code);
    // Called without the lock, because the names come from the streams.
    std::string names = fault && names_ ? names_() : std::string();
    std::lock_guard lock(mutex_);
    if (!faulted_) {
        faulted_ = fault;
        diagnosis_ = std::string(origin) + ": " + description;
        if (!names.empty()) diagnosis_ += "; kernels in flight, oldest first: " + names;
    }
    const Status status = status_of(code, origin);
    if (!fault) return status;
    const std::string whole = std::string(status.text()) + ": " + diagnosis_;
    return {status.error_number(), origin, base::kept_text(whole, status.text())};
}

void Context::note(std::string text) {
    std::lock_guard lock(mutex_);
    if (!faulted_) diagnosis_ = std::move(text);
}

std::string Context::diagnosis() const {
    std::lock_guard lock(mutex_);
    return diagnosis_;
}

void Context::abort(Status cause) {
    std::lock_guard lock(mutex_);
    if (aborted_.load(std::memory_order_relaxed)) return;
    abort_cause_ = cause;
    aborted_.store(true, std::memory_order_release);
}

Status Context::abort_cause() const {
    if (!aborted_.load(std::memory_order_acquire)) return {};
    std::lock_guard lock(mutex_);
    return abort_cause_;
}

}  // namespace penstock::backend::cuda
