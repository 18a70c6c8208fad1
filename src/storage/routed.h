// Reads and writes by the route of each: cached ones on the thread that submits, since nothing is
// faster for bytes that are there; direct ones by io_uring, many in flight beside them.
#pragma once

#include "storage/storage.h"

namespace penstock::storage {

// Where the kernel refuses io_uring, direct ones too are made by the thread that submits, and the
// description says why.
[[nodiscard]] std::shared_ptr<Storage> open_routed();

}  // namespace penstock::storage
