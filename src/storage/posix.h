// Reads and writes by preadv and pwritev on the thread that submits: needs nothing, and is the
// fastest way to bytes that are cached.
#pragma once

#include "storage/storage.h"

namespace penstock::storage {

[[nodiscard]] std::shared_ptr<Storage> open_posix();

}  // namespace penstock::storage
