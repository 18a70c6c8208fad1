// Drops the pages of a closed file where the host cannot address the page table: by a kernel.
//
// Only while no other kernel is in flight: one that fills the device may be waiting for the very
// call that wants pages dropped. One thread at a time.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "penstock/abi/file_system.h"
#include "penstock/status.h"

namespace penstock::service {

class PageDropper {
public:
    // `state`: as GPU threads address it. ENOSYS: the library's own kernel is not in this program.
    static Result<std::unique_ptr<PageDropper>> create(backend::Device* device,
                                                       FileSystemState* state);
    ~PageDropper();
    PageDropper(const PageDropper&) = delete;
    PageDropper& operator=(const PageDropper&) = delete;

    // Whether drop() may be called just now.
    [[nodiscard]] bool possible() const { return !given_up_ && !device_->kernels_in_flight(); }
    // Drops the pages of `count` directory words from `first` on; waits. False: some page is held,
    // or the device did not answer in time, after which it is not asked again.
    bool drop(uint64_t first, uint64_t count);

private:
    PageDropper(backend::Device* device, FileSystemState* state) : device_(device), state_(state) {}

    backend::Device* const device_;
    FileSystemState* const state_;
    backend::StreamId stream_ = 0;
    unsigned long long* kept_ = nullptr;       // device memory
    unsigned long long* kept_copy_ = nullptr;  // pinned: a late copy must find it there
    bool given_up_ = false;
};

}  // namespace penstock::service
