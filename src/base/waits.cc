// Linux counts for each thread how often it went to sleep (ru_nvcsw). Preemption, and time in which
// a hypervisor runs others, do not count.
#include "base/waits.h"

#include <sys/resource.h>

namespace penstock::base {

bool waited_since_asked() {
    thread_local long known = -1;
    rusage usage{};
    // A sandbox that counts nothing always reports 0.
    if (getrusage(RUSAGE_THREAD, &usage) != 0 || usage.ru_nvcsw == 0) return true;
    const bool waited = usage.ru_nvcsw != known;
    known = usage.ru_nvcsw;
    return waited;
}

}  // namespace penstock::base
