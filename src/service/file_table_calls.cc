// The host's calls on open files for kernels, besides open and close. Any thread.
#include <algorithm>
#include <cerrno>

#include "penstock/device/atomic.cuh"
#include "service/file_table.h"

namespace penstock::service {
namespace {

using device::DeviceWords;

}  // namespace

std::shared_ptr<transfer::Source> FileTable::source_of(Descriptor descriptor) {
    const std::lock_guard lock(mutex_);
    const Slot* slot = find_open(descriptor);
    return slot == nullptr ? nullptr : slot->source;
}

Status FileTable::sync(Descriptor descriptor) {
    std::shared_ptr<transfer::Source> source;
    std::shared_ptr<SyncGroup> syncs;
    {
        const std::lock_guard lock(mutex_);
        const Slot* slot = find_open(descriptor);
        if (slot == nullptr) return {EBADF, "gfsync", "no such open file"};
        source = slot->source;
        syncs = slot->syncs;
    }
    return syncs->sync(*source->file);
}

Status FileTable::truncate(Descriptor descriptor, uint64_t size) {
    const auto source = source_of(descriptor);
    if (source == nullptr) return {EBADF, "gftruncate", "no such open file"};
    return source->file->truncate(size);
}

// Returns whether the slot still serves the file that was requested.
bool FileTable::is_for_slot(const Request& request) const {
    return !is_window(request.kind) ||
           request.opened == (state_->files[request.file_slot].generation & 0xffff);
}

std::shared_ptr<transfer::Source> FileTable::find(const Request& request) const {
    const std::lock_guard lock(mutex_);
    if (request.file_slot >= used_ || !is_for_slot(request)) return nullptr;
    return slots_[request.file_slot].source;
}

Descriptor FileTable::descriptor_of(uint64_t number) const {
    const std::lock_guard lock(mutex_);
    const auto index = static_cast<uint32_t>(number & 0xffff);
    if (index >= used_ || number_of(index) != number || slots_[index].references == 0)
        return -EBADF;
    return make_descriptor(state_->system, index, state_->files[index].generation);
}

std::string FileTable::path_of(uint32_t slot) const {
    const std::lock_guard lock(mutex_);
    return slot < used_ ? slots_[slot].path : std::string();
}

std::optional<std::string> FileTable::path_of_number(uint64_t number) const {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return std::nullopt;
    const auto index = static_cast<uint32_t>(number & 0xffff);
    if (index >= used_ || number_of(index) != number) return std::nullopt;
    return slots_[index].path;
}

Result<uint64_t> FileTable::size(Descriptor descriptor) const {
    const std::lock_guard lock(mutex_);
    if (const_cast<FileTable*>(this)->find_open(descriptor) == nullptr) {
        return Status{EBADF, "size", "no such open file"};
    }
    return size_of(descriptor_slot(descriptor));
}

uint64_t FileTable::size_of(uint32_t slot) const {
    return DeviceWords::load(state_->files[slot].size, site::kRelaxed);
}

bool FileTable::is_written(uint32_t slot) const {
    return DeviceWords::load(state_->files[slot].writing, site::kRelaxed) != 0;
}

Status FileTable::shrink(const Request& request, uint64_t begin, uint64_t bytes) {
    uint64_t size = begin + bytes;
    // The new end may lie further down, in pages that were read before the file was cut. Bytes of
    // those beyond the end must not be returned any more either.
    const std::shared_ptr<transfer::Source> source = bytes == 0 ? find(request) : nullptr;
    storage::Identity now;
    if (source != nullptr && source->file->stat(&now).ok()) size = std::min(size, now.size);
    const std::lock_guard lock(mutex_);
    const uint32_t slot = request.file_slot;
    if (!is_for_slot(request)) return {ESTALE, "read ahead", "the file was closed"};
    if (size >= size_of(slot)) return {};
    if (state_->files[slot].writing != 0) return {};  // GPU threads know the size
    DeviceWords::store(state_->files[slot].size, size, site::kRelaxed);
    slots_[slot].racy = true;  // the file differs from the one opened, whatever its times
    return send(slot);
}

std::vector<Descriptor> FileTable::written_files() const {
    const std::lock_guard lock(mutex_);
    std::vector<Descriptor> files;
    for (uint32_t i = 0; i < used_; ++i) {
        if (slots_[i].writers > 0)
            files.push_back(make_descriptor(state_->system, i, state_->files[i].generation));
    }
    return files;
}

uint64_t FileTable::open_count() const {
    const std::lock_guard lock(mutex_);
    return open_count_;
}

}  // namespace penstock::service
