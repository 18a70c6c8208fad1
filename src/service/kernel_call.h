// Lets the host run a kernel of this library and wait for it. The kernel returns one word.
//
// One thread at a time. The constructor takes all memory, because a call may be made while other
// kernels run.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "penstock/kernel.h"
#include "penstock/status.h"

namespace penstock::service {

class KernelCall {
public:
    // `key` is the kernel's key in the registry. ENOSYS: the kernel is not in this program.
    static Result<std::unique_ptr<KernelCall>> create(backend::Device* device, const char* key);
    ~KernelCall();
    KernelCall(const KernelCall&) = delete;
    KernelCall& operator=(const KernelCall&) = delete;

    // Runs one block of `threads` with these arguments, followed by the address of the word in
    // device memory, which is 0 at the start. Stores the final word in `*word`. `Kernel` is the
    // type of the function, which need not be in this program. After an error or ETIMEDOUT the
    // kernel may still run.
    template <class Kernel, class... Arguments>
    Status run(unsigned threads, std::chrono::nanoseconds limit, unsigned long long* word,
               Arguments... arguments) {
        auto* const kernel = reinterpret_cast<Kernel*>(const_cast<void*>(function_));
        return run(make_launch({{1}, {threads}, 0}, kernel, arguments..., word_), limit, word);
    }

private:
    KernelCall(backend::Device* device, const void* function)
        : device_(device), function_(function) {}
    Status run(const LaunchRequest& request, std::chrono::nanoseconds limit,
               unsigned long long* word);

    backend::Device* const device_;
    const void* const function_;
    backend::StreamId stream_ = 0;
    unsigned long long* word_ = nullptr;  // device memory
    unsigned long long* copy_ = nullptr;  // pinned: a late copy must find the memory
};

}  // namespace penstock::service
