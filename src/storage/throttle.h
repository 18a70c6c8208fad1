// Slows another storage to stated figures, so that a study can say which disk it means. Each
// operation first waits a fixed latency, which operations in flight share. Then its bytes, read or
// written, pass one after another over a link of fixed bandwidth. Syncing and truncating are not
// slowed.
//
// The delays are real time. A slower storage underneath stays slower.
#pragma once

#include "storage/storage.h"

namespace penstock::storage {

// Fails with EINVAL as check() does.
[[nodiscard]] Result<std::shared_ptr<Storage>> open_throttle(std::shared_ptr<Storage> under,
                                                             const ThrottleOptions& options);

}  // namespace penstock::storage
