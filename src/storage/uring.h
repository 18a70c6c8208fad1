// Reads and writes with io_uring. One thread can keep many operations in flight, which helps for
// bytes that are not in the OS page cache.
#pragma once

#include "storage/storage.h"

namespace penstock::storage {

// Makes a ring and sends an empty operation through it. ENOSYS, EPERM, ENOMEM and others, with the
// reason: the kernel or a sandbox refuses io_uring. The caller decides what to use instead.
[[nodiscard]] Result<std::shared_ptr<Storage>> open_uring();

}  // namespace penstock::storage
