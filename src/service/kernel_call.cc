#include "service/kernel_call.h"

#include <cerrno>

namespace penstock::service {

Result<std::unique_ptr<KernelCall>> KernelCall::create(backend::Device* device, const char* key) {
    const KernelEntry* entry = find_kernel_by_key(key);
    if (entry == nullptr)
        return Status{ENOSYS, "file system", "a kernel of the library's own is missing"};
    std::unique_ptr<KernelCall> call(new KernelCall(device, entry->function));
    void* memory = nullptr;
    if (Status s = device->create_stream(0, &call->stream_); !s.ok()) return s;
    if (Status s = device->allocate(sizeof *word_, backend::Memory::kDevice, &memory); !s.ok())
        return s;
    call->word_ = static_cast<unsigned long long*>(memory);
    if (Status s = device->allocate(sizeof *word_, backend::Memory::kPinned, &memory); !s.ok())
        return s;
    call->copy_ = static_cast<unsigned long long*>(memory);
    return call;
}

KernelCall::~KernelCall() {
    if (stream_ != 0) (void)device_->destroy_stream(stream_);
    if (word_ != nullptr) device_->free(word_);
    if (copy_ != nullptr) device_->free(copy_);
}

Status KernelCall::run(const LaunchRequest& request, std::chrono::nanoseconds limit,
                       unsigned long long* word) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    Status status = device_->fill(stream_, word_, 0, sizeof *word_);
    if (status.ok()) status = device_->launch(stream_, request);
    // The copy is submitted only after the kernel has ended. Behind the kernel it would wait in a
    // queue of the GPU, and copies that the kernel waits for may stand behind it there.
    if (status.ok()) status = device_->synchronize(stream_, deadline);
    if (status.ok()) status = device_->copy(stream_, copy_, word_, sizeof *word_);
    if (status.ok()) status = device_->synchronize(stream_, deadline);
    if (status.ok()) *word = *copy_;
    return status;
}

}  // namespace penstock::service
