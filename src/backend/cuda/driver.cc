#include "backend/cuda/driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>

#include "backend/cuda/errors.h"

namespace penstock::backend::cuda {
namespace {

template <class... Parameters>
bool resolve(void* library, const char* symbol, Call<Parameters...>* out) {
    out->function = reinterpret_cast<int (*)(Parameters...)>(dlsym(library, symbol));
    out->name = symbol;
    return out->function != nullptr;
}

// Returns the first symbol that is missing, or null.
const char* resolve_all(void* library, Driver* out) {
    const char* last = nullptr;
#define PENSTOCK_CUDA_RESOLVE(member, symbol, ...) \
    &&(last = #symbol, resolve(library, #symbol, &out->member))
    const bool all = true PENSTOCK_CUDA_DRIVER_CALLS(PENSTOCK_CUDA_RESOLVE);
#undef PENSTOCK_CUDA_RESOLVE
#define PENSTOCK_CUDA_TRY(member, symbol, ...) (void)resolve(library, #symbol, &out->member);
    PENSTOCK_CUDA_NEWER_DRIVER_CALLS(PENSTOCK_CUDA_TRY)
#undef PENSTOCK_CUDA_TRY
    return all ? nullptr : last;
}

// By default the driver shares 8 queues of copies among all streams of a process. A copy that waits
// in one of them for a kernel delays copies of other streams behind it. With the largest number of
// queues, kernels that read files continued whatever copies a program queued
// (docs/design/0010-writing.md, "On a GPU"). The driver reads the variable once, when it starts,
// and the program may start it. So it is set when this library is loaded. A value chosen by the
// program or user is kept. Where the preload library loads this one, the program has long begun,
// and its threads may be reading their environment.
[[gnu::constructor]] void ask_for_all_copy_queues() {
    if (dlsym(RTLD_DEFAULT, "penstock_preloaded") != nullptr) return;
    ::setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "32", 0);
}

}  // namespace

std::string Driver::describe(int code) const {
    const char* name = nullptr;
    const char* text = nullptr;
    if (error_name(code, &name) != kSuccess || name == nullptr) {
        return "CUDA error " + std::to_string(code);
    }
    std::string line = name;
    if (error_string(code, &text) == kSuccess && text != nullptr) {
        line += " (" + std::string(text) + ")";
    }
    return line;
}

Result<std::unique_ptr<const Driver>> load_driver(const char* path, std::string* why) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* reason = dlerror();
        *why = std::string("no CUDA driver: ") + (reason == nullptr ? path : reason);
        return Status(ENODEV, "dlopen", "no CUDA driver on this machine (libcuda.so.1)");
    }
    auto driver = std::make_unique<Driver>();
    if (const char* missing = resolve_all(library, driver.get()); missing != nullptr) {
        *why = std::string(path) + " has no " + missing +
               ": older than CUDA 12, which is the least that is supported";
        dlclose(library);
        return Status(ENODEV, "dlsym", "the CUDA driver is older than CUDA 12");
    }
    if (const int code = driver->init(0); code != kSuccess) {
        *why = "the CUDA driver does not start: " + driver->describe(code);
        Status status = status_of(code, driver->init.name);
        dlclose(library);
        return status;
    }
    return std::unique_ptr<const Driver>(std::move(driver));
}

Result<const Driver*> open_driver(std::string* why) {
    static std::mutex mutex;
    static const Driver* opened = nullptr;  // never freed: calls may come until the process ends
    std::lock_guard lock(mutex);
    if (opened == nullptr) {
        const char* path = std::getenv("PENSTOCK_LIBCUDA");
        auto loaded = load_driver(path != nullptr && *path != '\0' ? path : "libcuda.so.1", why);
        if (!loaded.ok()) return loaded.status();
        opened = loaded.value().release();
    }
    return opened;
}

}  // namespace penstock::backend::cuda
