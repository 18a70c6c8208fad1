// What the host does to an open file for kernels, beside opening and closing it. Any thread.
#include <cerrno>

#include "service/file_table.h"

namespace penstock::service {

// Null: it is not open.
std::shared_ptr<transfer::Source> FileTable::source_of(Descriptor descriptor) {
    const std::lock_guard lock(mutex_);
    const Slot* slot = find_open(descriptor);
    return slot == nullptr ? nullptr : slot->source;
}

Status FileTable::sync(Descriptor descriptor) {
    const auto source = source_of(descriptor);
    if (source == nullptr) return {EBADF, "gfsync", "no such open file"};
    return source->file->sync(false);
}

Status FileTable::truncate(Descriptor descriptor, uint64_t size) {
    const auto source = source_of(descriptor);
    if (source == nullptr) return {EBADF, "gftruncate", "no such open file"};
    return source->file->truncate(size);
}

Status FileTable::write(Descriptor descriptor, uint64_t offset, std::span<std::byte> bytes) {
    const auto source = source_of(descriptor);
    if (source == nullptr) return {EBADF, "gwrite", "no such open file"};
    const std::lock_guard lock(edge_mutex_);
    if (edge_queue_ == nullptr) {
        auto made = storage_->make_queue(1);
        if (!made.ok()) return made.status();
        edge_queue_ = std::move(made.value());
    }
    const iovec piece{bytes.data(), bytes.size()};
    const storage::Operation operation{
        .file = source->file.get(), .offset = offset, .pieces = {&piece, 1}, .write = true};
    storage::Completion done;
    if (edge_queue_->submit({&operation, 1}) != 1 || edge_queue_->reap({&done, 1}, true) != 1)
        return {EIO, "gwrite", "a storage queue takes nothing"};
    if (done.error == 0 && done.bytes == bytes.size()) return {};
    return {done.error != 0 ? done.error : EIO, "gwrite", "a part of 64 bytes was not written"};
}

}  // namespace penstock::service
