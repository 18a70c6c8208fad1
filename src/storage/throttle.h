// Slows another storage to stated figures, so that a study says what disk it means: a fixed latency
// of every operation, overlapped by those in flight, then the bytes, read and written, one after
// another over a link of fixed bandwidth. Syncing and cutting are not slowed.
//
// Sleeps for real. It can only slow: where the storage underneath is slower, that shows.
#pragma once

#include "storage/storage.h"

namespace penstock::storage {

// EINVAL as check().
[[nodiscard]] Result<std::shared_ptr<Storage>> open_throttle(std::shared_ptr<Storage> under,
                                                             const ThrottleOptions& options);

}  // namespace penstock::storage
