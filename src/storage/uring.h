// Reads and writes by io_uring: many in flight from one thread, for what is not in the OS page
// cache.
#pragma once

#include "storage/storage.h"

namespace penstock::storage {

// Makes a ring and sends an empty operation through it. ENOSYS, EPERM, ENOMEM ... with the reason
// when the kernel or a sandbox refuses; the caller decides what to use instead.
[[nodiscard]] Result<std::shared_ptr<Storage>> open_uring();

}  // namespace penstock::storage
