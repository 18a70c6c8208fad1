// Reads and writes with preadv and pwritev on the submitting thread. It works on every kernel and
// is the fastest way to cached bytes.
#pragma once

#include "storage/storage.h"

namespace penstock::storage {

[[nodiscard]] std::shared_ptr<Storage> open_posix();

}  // namespace penstock::storage
