// Runs a kernel that drops the pages of a closed file, for a host that cannot address the page
// table.
//
// It runs only while no other kernel is in flight: a kernel that fills the device may be waiting
// for the very call that wants the pages dropped. One thread at a time.
#pragma once

#include <memory>
#include <utility>

#include "backend/backend.h"
#include "penstock/abi/file_system.h"
#include "penstock/status.h"
#include "service/kernel_call.h"

namespace penstock::service {

class PageDropper {
public:
    // `state` is as GPU threads address it. ENOSYS: the library's own kernel is not in this
    // program.
    static Result<std::unique_ptr<PageDropper>> create(backend::Device* device,
                                                       FileSystemState* state);

    // Returns whether drop() may be called now.
    [[nodiscard]] bool possible() const { return !device_->kernels_seen_in_flight(); }
    // Drops the pages of `count` directory words from `first` on, and waits. Returns false if a
    // page is held, if a kernel is in flight, or if the device did not answer in time because a
    // kernel was launched meanwhile. In the last case the pages are dropped later, which does no
    // harm.
    bool drop(uint64_t first, uint64_t count);

private:
    PageDropper(backend::Device* device, FileSystemState* state, std::unique_ptr<KernelCall> call)
        : device_(device), state_(state), call_(std::move(call)) {}

    backend::Device* const device_;
    FileSystemState* const state_;
    const std::unique_ptr<KernelCall> call_;
};

}  // namespace penstock::service
