#include "backend/cuda/kernels.h"

#include <algorithm>
#include <string_view>

#include "backend/cuda/kernel_library.h"
#include "base/kept_text.h"

namespace penstock::backend::cuda {

Status Kernels::load_all() {
    std::lock_guard lock(mutex_);
    size_t local_size = 0;
    for (const KernelEntry* entry = first_kernel(); entry != nullptr; entry = entry->next) {
        const Kernel* kernel = load(*entry);
        if (kernel->status.error_number() == EFAULT || kernel->status.error_number() == ENOMEM) {
            return kernel->status;  // the device's error, not this kernel's
        }
        local_size = std::max(local_size, kernel->attributes.local_size);
    }
    size_t present = 0;
    Status status = context_.call(context_.driver().get_limit, &present, kLimitStackSize);
    if (status.ok() && local_size > present) {
        status = context_.call(context_.driver().set_limit, kLimitStackSize, local_size);
    }
    return status;
}

Status Kernels::any_usable() {
    std::lock_guard lock(mutex_);
    constexpr std::string_view kOwn = "penstock/";  // the library's kernels are not the program's
    Status first;
    for (const auto& [function, kernel] : kernels_) {
        if (std::string_view(kernel->key).starts_with(kOwn)) continue;
        if (kernel->status.ok()) return {};
        if (first.ok()) first = kernel->status;
    }
    return first;
}

const Kernel* Kernels::find(const void* function) {
    std::lock_guard lock(mutex_);
    const auto found = kernels_.find(function);
    return found == kernels_.end() ? nullptr : found->second.get();
}

Result<const Kernel*> Kernels::load_late(const void* function) {
    const KernelEntry* entry = find_kernel(function);
    if (entry == nullptr) {
        return Status(EINVAL, "launch", "not a registered kernel: name it in PENSTOCK_KERNEL");
    }
    std::lock_guard lock(mutex_);
    if (const auto found = kernels_.find(function); found != kernels_.end())
        return found->second.get();
    return load(*entry);
}

const Kernel* Kernels::load(const KernelEntry& entry) {
    auto kernel = std::make_unique<Kernel>();
    kernel->key = entry.key;
    auto library = open_kernel_library(entry, &kernel->detail);
    if (!library.ok()) {
        kernel->status = library.status();
    } else {
        kernel->library = library.value();
        kernel->stub = find_stub(*kernel->library, entry.key);
        if (kernel->stub == nullptr) {
            kernel->status = Status(ENOENT, "launch", "the library of CUDA kernels lacks this one");
            kernel->detail = std::string("lib") + target_of(entry.key) + "_cuda.so has no kernel " +
                             entry.key + ": it is older than the program";
        }
    }
    if (kernel->status.ok()) {
        const int code = context_.within([&] {
            return kernel->library->prepare(kernel->stub, shared_size_max_, &kernel->attributes);
        });
        if (code != kSuccess) {
            kernel->detail = std::string(entry.key) +
                             " cannot be loaded: " + kernel->library->error_name(code) + " (" +
                             kernel->library->error_text(code) + ")";
            kernel->status = context_.failed(code, "cudaFuncGetAttributes", kernel->detail);
        }
    }
    if (const Status why = kernel->status; !why.ok() && !kernel->detail.empty()) {
        const std::string whole = std::string(why.text()) + ": " + kernel->detail;
        kernel->status = {why.error_number(), why.origin(), base::kept_text(whole, why.text())};
    }
    return (kernels_[entry.function] = std::move(kernel)).get();
}

}  // namespace penstock::backend::cuda
