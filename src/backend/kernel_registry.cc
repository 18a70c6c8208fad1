// The kernels of the program, by address and by key. PENSTOCK_KERNEL fills it before main, in any
// order of the translation units, and libraries that are opened later add to it. Any thread may
// call anything.
#include <cstring>
#include <mutex>

#include "penstock/kernel.h"

namespace penstock {
namespace {

// Constant-initialised, because registration runs before any constructor of this file would.
constinit std::mutex mutex;
constinit KernelEntry* first_entry = nullptr;

KernelEntry* find_locked(const void* function) {
    for (KernelEntry* entry = first_entry; entry != nullptr; entry = entry->next) {
        if (entry->function == function) return entry;
    }
    return nullptr;
}

KernelEntry* find_key_locked(const char* key) {
    for (KernelEntry* entry = first_entry; entry != nullptr; entry = entry->next) {
        if (std::strcmp(entry->key, key) == 0) return entry;
    }
    return nullptr;
}

}  // namespace

// The same kernel may be listed in several translation units and gets one entry. Another function
// under a known key is not entered, so that its launch fails as not registered.
void register_kernel(KernelEntry* entry) {
    std::lock_guard lock(mutex);
    if (find_key_locked(entry->key) != nullptr) return;
    entry->next = first_entry;
    first_entry = entry;
}

KernelEntry* find_kernel(const void* function) {
    std::lock_guard lock(mutex);
    return find_locked(function);
}

KernelEntry* first_kernel() {
    std::lock_guard lock(mutex);
    return first_entry;
}

KernelEntry* find_kernel_by_key(const char* key) {
    std::lock_guard lock(mutex);
    return find_key_locked(key);
}

}  // namespace penstock
