// Drops the pages of a closed file where the host cannot address the page table: by a kernel.
//
// Only while no other kernel is in flight: one that fills the device may be waiting for the very
// call that wants pages dropped. One thread at a time.
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
    // `state`: as GPU threads address it. ENOSYS: the library's own kernel is not in this program.
    static Result<std::unique_ptr<PageDropper>> create(backend::Device* device,
                                                       FileSystemState* state);

    // Whether drop() may be called just now.
    [[nodiscard]] bool possible() const { return !device_->kernels_seen_in_flight(); }
    // Drops the pages of `count` directory words from `first` on; waits. False: some page is held,
    // a kernel is in flight, or the device did not answer in time, as one was launched meanwhile:
    // it drops them late then, which nobody minds.
    bool drop(uint64_t first, uint64_t count);

private:
    PageDropper(backend::Device* device, FileSystemState* state, std::unique_ptr<KernelCall> call)
        : device_(device), state_(state), call_(std::move(call)) {}

    backend::Device* const device_;
    FileSystemState* const state_;
    const std::unique_ptr<KernelCall> call_;
};

}  // namespace penstock::service
