// See placement.h.
#include "backend/cpu/placement.h"

namespace penstock::backend::cpu {

int cpu_at(const cpu_set_t& allowed, unsigned index) {
    const int count = CPU_COUNT(&allowed);
    if (count == 0) return -1;
    unsigned left = index % static_cast<unsigned>(count);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &allowed) && left-- == 0) return cpu;
    return -1;
}

void begin_on_cpu(unsigned index) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;  // more CPUs than it holds
    const int cpu = cpu_at(allowed, index);
    if (cpu < 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) == 0)
        (void)sched_setaffinity(0, sizeof allowed, &allowed);
}

}  // namespace penstock::backend::cpu
