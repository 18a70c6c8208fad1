#include "testing/remote_device.h"

namespace penstock::testing {

using backend::StreamId;

RemoteDevice::RemoteDevice(std::shared_ptr<backend::Device> inner)
    : inner_(std::move(inner)), properties_(inner_->properties()) {
    properties_.name = "remote " + properties_.name;
    properties_.host_addressable = false;
}

Status RemoteDevice::allocate(size_t size, backend::Memory memory, void** out) {
    Status status = inner_->allocate(size, memory, out);
    if (status.ok() && memory != backend::Memory::kPinned) {
        const std::lock_guard lock(mutex_);
        device_pieces_[static_cast<const std::byte*>(*out)] = size;
    }
    return status;
}
void RemoteDevice::free(void* pointer) {
    {
        const std::lock_guard lock(mutex_);
        device_pieces_.erase(static_cast<const std::byte*>(pointer));
    }
    inner_->free(pointer);
}
bool RemoteDevice::host_can_address(const void* address) const {
    const auto* byte = static_cast<const std::byte*>(address);
    const std::lock_guard lock(mutex_);
    const auto behind = device_pieces_.upper_bound(byte);
    if (behind == device_pieces_.begin()) return true;
    const auto& [base, size] = *std::prev(behind);
    return byte >= base + size;
}
size_t RemoteDevice::free_memory() const { return inner_->free_memory(); }
Status RemoteDevice::create_stream(int priority, StreamId* out) {
    return inner_->create_stream(priority, out);
}
Status RemoteDevice::destroy_stream(StreamId stream) { return inner_->destroy_stream(stream); }
Status RemoteDevice::launch(StreamId stream, LaunchRequest request) {
    return inner_->launch(stream, std::move(request));
}

Status RemoteDevice::copy(StreamId stream, void* to, const void* from, size_t size) {
    copy_count_.fetch_add(1);
    const bool words = size <= kWholeSizeMax;
    if (!words && copies_until_failure_.load() > 0 && copies_until_failure_.fetch_sub(1) == 1)
        failing_place_ = to;
    if (to == failing_place_) return {EIO, "copy", "as the test asked"};
    return inner_->copy(stream, to, from, size);
}
Status RemoteDevice::copy_words(StreamId stream, uint64_t* to, const uint64_t* from, size_t count) {
    copy_count_.fetch_add(1);
    return inner_->copy_words(stream, to, from, count);
}
Status RemoteDevice::fill(StreamId stream, void* to, uint8_t value, size_t size) {
    return inner_->fill(stream, to, value, size);
}
Status RemoteDevice::write_value(StreamId stream, uint64_t* address, uint64_t value) {
    write_count_.fetch_add(1);
    if (writes_until_failure_.load() > 0 && writes_until_failure_.fetch_sub(1) == 1) {
        return {EIO, "write", "as the test asked"};
    }
    return inner_->write_value(stream, address, value);
}
Status RemoteDevice::synchronize(StreamId stream, backend::Deadline deadline) {
    return inner_->synchronize(stream, deadline);
}
Status RemoteDevice::query(StreamId stream, bool* idle) { return inner_->query(stream, idle); }

bool RemoteDevice::kernels_in_flight() const { return inner_->kernels_in_flight(); }
void RemoteDevice::poll() {
    poll_count_.fetch_add(1);
    inner_->poll();
}
// As on CUDA: blocks take no help, and none of their words wakes a host thread.
Status RemoteDevice::add_help(backend::Help) { return {}; }
void RemoteDevice::remove_help(void*) {}
void RemoteDevice::notify(const uint64_t* address, size_t count) { inner_->notify(address, count); }
void RemoteDevice::wait_changed(const uint64_t* address, uint64_t seen,
                                std::chrono::nanoseconds limit) {
    inner_->wait_changed(address, seen, limit);
}

std::string RemoteDevice::diagnosis() const { return inner_->diagnosis(); }
void RemoteDevice::abort(Status cause) { inner_->abort(cause); }

}  // namespace penstock::testing
