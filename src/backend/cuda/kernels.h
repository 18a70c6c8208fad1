// The kernels of one device. They are loaded when it is opened, so that no launch loads code while
// other kernels run.
//
// If a kernel's library is missing or does not fit the device, only the launch of that kernel
// fails, with the reason. Kernels of libraries that the program opens later are loaded at their
// first launch, when no kernel runs. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "backend/cuda/context.h"
#include "penstock/cuda_library.h"
#include "penstock/kernel.h"

namespace penstock::backend::cuda {

struct Kernel {
    const char* key = "";
    const CudaLibrary* library = nullptr;
    const void* stub = nullptr;
    CudaKernelAttributes attributes;
    Status status;       // not ok: why it cannot be launched
    std::string detail;  // the same reason for people
};

class Kernels {
public:
    // `shared_size_max`: bytes of shared memory per block, static and dynamic.
    Kernels(Context& context, size_t shared_size_max)
        : context_(context), shared_size_max_(shared_size_max) {}

    // Loads all registered kernels, and reserves the largest local memory that they need. To grow
    // it later would wait for running kernels.
    Status load_all();

    // Returns ok if at least one kernel can run or none is registered, else why the first one
    // cannot.
    Status any_usable();

    // Returns the kernel of a g++ function, or null if it is not loaded. It lives as long as this
    // object.
    const Kernel* find(const void* function);
    // Loads a kernel that was registered after load_all(). Requires that no kernel runs. EINVAL: it
    // is not registered.
    Result<const Kernel*> load_late(const void* function);

private:
    const Kernel* load(const KernelEntry& entry);

    Context& context_;
    const size_t shared_size_max_;
    std::mutex mutex_;
    std::unordered_map<const void*, std::unique_ptr<const Kernel>> kernels_;  // by g++ function
};

}  // namespace penstock::backend::cuda
