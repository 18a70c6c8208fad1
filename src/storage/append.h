// Appends of a file with a descriptor. Storage kinds that have descriptors share it. Any thread.
#pragma once

#include "storage/storage.h"

namespace penstock::storage {

// Returns whether `operation` is a write of a file that appends.
[[nodiscard]] inline bool is_append(const Operation& operation) {
    return operation.write && operation.file != nullptr && operation.file->rights().append;
}

// Does such a write on this thread: one system call, or as many as the kernel makes of it.
[[nodiscard]] Completion append(const Operation& operation);

}  // namespace penstock::storage
