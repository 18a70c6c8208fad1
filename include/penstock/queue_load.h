// The request queue at one moment, for studies of who waits for whom.
#pragma once

#include <cstdint>

namespace penstock {

struct QueueLoad {
    uint64_t backlog = 0;       // requests submitted and not yet taken
    unsigned busy_workers = 0;  // workers with requests in hand
};

}  // namespace penstock
