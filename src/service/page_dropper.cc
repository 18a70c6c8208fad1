#include "service/page_dropper.h"

#include <cerrno>
#include <chrono>

#include "penstock/kernel.h"
#include "service/drop_pages.h"

namespace penstock::service {
namespace {

constexpr std::chrono::seconds kLimit{5};

}  // namespace

Result<std::unique_ptr<PageDropper>> PageDropper::create(backend::Device* device,
                                                         FileSystemState* state) {
    if (find_kernel_by_key(kDropPagesKey) == nullptr) {
        return Status{ENOSYS, "file system", "the library's kernel that drops pages is missing"};
    }
    std::unique_ptr<PageDropper> dropper(new PageDropper(device, state));
    void* memory = nullptr;
    if (Status s = device->create_stream(0, &dropper->stream_); !s.ok()) return s;
    if (Status s = device->allocate(sizeof *kept_, backend::Memory::kDevice, &memory); !s.ok()) {
        return s;
    }
    dropper->kept_ = static_cast<unsigned long long*>(memory);
    if (Status s = device->allocate(sizeof *kept_, backend::Memory::kPinned, &memory); !s.ok()) {
        return s;
    }
    dropper->kept_copy_ = static_cast<unsigned long long*>(memory);
    return dropper;
}

PageDropper::~PageDropper() {
    if (stream_ != 0) (void)device_->destroy_stream(stream_);
    if (kept_ != nullptr) device_->free(kept_);
    if (kept_copy_ != nullptr) device_->free(kept_copy_);
}

bool PageDropper::drop(uint64_t first, uint64_t count) {
    const KernelEntry* entry = find_kernel_by_key(kDropPagesKey);
    const auto kernel = reinterpret_cast<decltype(&drop_pages)>(const_cast<void*>(entry->function));
    const auto request = make_launch({{1}, {kDropThreads}, 0}, kernel, state_, first, count, kept_);
    *kept_copy_ = 1;
    const bool done = device_->fill(stream_, kept_, 0, sizeof *kept_).ok() &&
                      device_->launch(stream_, request).ok() &&
                      device_->copy(stream_, kept_copy_, kept_, sizeof *kept_).ok() &&
                      device_->synchronize(stream_, std::chrono::steady_clock::now() + kLimit).ok();
    given_up_ = !done;
    return done && *kept_copy_ == 0;
}

}  // namespace penstock::service
