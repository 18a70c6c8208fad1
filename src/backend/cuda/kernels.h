// The kernels of one device: loaded when it is opened, so that no launch loads code while others
// run.
//
// A kernel whose library is missing or does not fit the device keeps the reason; only its launch
// fails. Kernels of libraries that the program opens later are loaded at their first launch, when
// nothing runs. Any thread.
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
    std::string detail;  // the same for people
};

class Kernels {
public:
    // `shared_size_max`: bytes of shared memory that one block can have, static and dynamic.
    Kernels(Context& context, size_t shared_size_max)
        : context_(context), shared_size_max_(shared_size_max) {}

    // Loads every registered kernel, and sees to it that the largest need of local memory is met
    // now: growing it later would wait for the kernels that run.
    Status load_all();

    // Ok: at least one kernel can run, or none is registered. Else why the first cannot.
    Status any_usable();

    // The kernel of a g++ function; null when it is not loaded. Lives as long as this object.
    const Kernel* find(const void* function);
    // Loads one that was registered after load_all, when no kernel runs. EINVAL: it is not
    // registered.
    Result<const Kernel*> load_late(const void* function);

private:
    const Kernel* load(const KernelEntry& entry);

    Context& context_;
    const size_t shared_size_max_;
    std::mutex mutex_;
    std::unordered_map<const void*, std::unique_ptr<const Kernel>> kernels_;  // by g++ function
};

}  // namespace penstock::backend::cuda
