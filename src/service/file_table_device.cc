// Sends the host's file slots to GPU threads that do not share its memory. Any thread, with the
// file table's mutex held.
#include <chrono>
#include <cstddef>

#include "penstock/device/atomic.cuh"
#include "service/file_table.h"

namespace penstock::service {
namespace {

using device::SystemWords;

// Limit of a copy to the device, which waits for no kernel.
constexpr std::chrono::seconds kSendLimit{5};

}  // namespace

// Sends a slot to the device, unless GPU threads share the host's copy. Without `sizes`, leaves out
// what GPU threads change while the file is written.
Status FileTable::send(uint32_t index, bool sizes) {
    if (device_files_ == state_->files) return {};
    FileState &to = device_files_[index], &from = state_->files[index];
    constexpr size_t kIdentity = sizeof from.device + sizeof from.inode;
    static_assert(offsetof(FileState, inode) == offsetof(FileState, device) + sizeof from.device);
    static_assert(offsetof(FileState, stored) + sizeof from.stored == offsetof(FileState, advice));
    const size_t size = sizes ? offsetof(FileState, advice) : offsetof(FileState, size);
    Status copied = device_->copy(stream_, &to, &from, size);
    if (copied.ok()) copied = device_->copy(stream_, &to.device, &from.device, kIdentity);
    if (copied.ok() && sizes)
        copied = device_->copy(stream_, &to.error, &from.error, sizeof from.error);
    if (!copied.ok()) return copied;
    return device_->synchronize(stream_, std::chrono::steady_clock::now() + kSendLimit);
}

// Sends the size, which the host decides when there are no writers left. Readers of the file then
// see it.
void FileTable::send_size(uint32_t index) {
    if (device_files_ == state_->files) return;
    FileState &to = device_files_[index], &from = state_->files[index];
    if (!device_->copy(stream_, &to.size, &from.size, sizeof from.size).ok()) return;
    (void)device_->synchronize(stream_, std::chrono::steady_clock::now() + kSendLimit);
}

Status FileTable::announce(uint64_t& response, uint64_t value) {
    if (device_files_ == state_->files) {
        SystemWords::store(response, value, site::kRespond);
        device_->notify(&response);
        return {};
    }
    // The stream stores the word after the copy engine's bytes; a store by the CPU could overtake
    // them. The host waits, because it also reads this word to see which calls it has answered.
    if (Status stored = device_->write_value(stream_, &response, value); !stored.ok())
        return stored;
    Status done = device_->synchronize(stream_, std::chrono::steady_clock::now() + kSendLimit);
    device_->notify(&response);
    return done;
}

}  // namespace penstock::service
