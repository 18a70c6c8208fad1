// The load of the request queue at one moment, for studies of where requests wait.
#pragma once

#include <cstdint>

namespace penstock {

// The load of the request queue.
struct QueueLoad {
    uint64_t backlog = 0;       // requests that are submitted and not yet drained
    unsigned busy_workers = 0;  // workers that are serving requests
};

}  // namespace penstock
