// What the host does to an open file for kernels, beside opening and closing it. Any thread.
#include <cerrno>

#include "service/file_table.h"

namespace penstock::service {

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

}  // namespace penstock::service
