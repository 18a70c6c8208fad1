// The preemptible forms of the program's kernels, by the address of the kernel. Filled before main
// and by libraries that are opened later. Any thread may call anything.
#include <mutex>

#include "penstock/preemption.h"

namespace penstock {
namespace {

// Constant-initialised, because registration runs before any constructor of this file would.
constinit std::mutex mutex;
constinit PreemptibleEntry* first_entry = nullptr;

const PreemptibleEntry* find_locked(const void* function) {
    for (PreemptibleEntry* entry = first_entry; entry != nullptr; entry = entry->next) {
        if (entry->function == function) return entry;
    }
    return nullptr;
}

}  // namespace

void register_preemptible(PreemptibleEntry* entry) {
    const std::lock_guard lock(mutex);
    if (find_locked(entry->function) != nullptr) return;
    entry->next = first_entry;
    first_entry = entry;
}

const PreemptibleEntry* find_preemptible(const void* function) {
    const std::lock_guard lock(mutex);
    return find_locked(function);
}

}  // namespace penstock
