// A kernel of the library's own that the host has run, and waits for; it leaves one word.
//
// One thread at a time. All memory is taken at construction, as a call may be made beside kernels
// that run.
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
    // `key`: of the kernel in the registry. ENOSYS: it is not in this program.
    static Result<std::unique_ptr<KernelCall>> create(backend::Device* device, const char* key);
    ~KernelCall();
    KernelCall(const KernelCall&) = delete;
    KernelCall& operator=(const KernelCall&) = delete;

    // Runs one block of `threads`, with these arguments and behind them the address of the word in
    // device memory, which is 0 then; `*word` is what the kernel made of it. `Kernel`: the type of
    // the function, which need not be in this program. An error, ETIMEDOUT: it may run still.
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
    unsigned long long* copy_ = nullptr;  // pinned: a late copy must find it there
};

}  // namespace penstock::service
