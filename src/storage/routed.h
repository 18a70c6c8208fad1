// Chooses the storage by the route of each operation. The submitting thread makes cached ones,
// which is fastest for cached bytes. io_uring makes direct ones, with many in flight meanwhile.
#pragma once

#include "storage/storage.h"

namespace penstock::storage {

// If the kernel refuses io_uring, the submitting thread makes direct operations too, and
// description() says why.
[[nodiscard]] std::shared_ptr<Storage> open_routed();

}  // namespace penstock::storage
