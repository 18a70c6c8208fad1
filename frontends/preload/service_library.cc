#include "service_library.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "next.h"
#include "raw_calls.h"

namespace penstock::preload {
namespace {

constexpr char kName[] = "libpenstock-preload-service.so";

Service service;  // threads that load it at once store the same values
std::atomic<const Service*> loaded{nullptr};
std::atomic<int> loading{0};  // threads that load it
bool interrupted = false;     // this process was forked meanwhile

template <class Function>
bool resolve(void* library, const char* name, Function** out) {
    *out = reinterpret_cast<Function*>(dlsym(library, name));
    return *out != nullptr;
}

// Writes the path of the library into `path`, which has room for PATH_MAX bytes.
bool find_library(char* path) {
    Dl_info own;
    if (dladdr(kName, &own) == 0) return false;
    const char* slash = strrchr(own.dli_fname, '/');
    const size_t folder = slash == nullptr ? 0 : static_cast<size_t>(slash + 1 - own.dli_fname);
    if (folder + sizeof kName > PATH_MAX) return false;
    memcpy(path, own.dli_fname, folder);
    memcpy(path + folder, kName, sizeof kName);
    return true;
}

// Exempts the code of the libraries that the service consists of.
int exempt_own(dl_phdr_info* object, size_t, void*) {
    if (strstr(object->dlpi_name, "/libpenstock") == nullptr) return 0;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const auto& part = object->dlpi_phdr[i];
        const uintptr_t begin = object->dlpi_addr + part.p_vaddr;
        if (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0)
            exempt(begin, begin + part.p_memsz);
    }
    return 0;
}

}  // namespace

void forget_loading() {
    interrupted = interrupted || loading.load() > 0;
    loading.store(0);
}

bool may_be_handler(uint64_t signals) {
    uint64_t blocked = 0;
    kernel::call(SYS_rt_sigprocmask, SIG_BLOCK, nullptr, &blocked, sizeof blocked);
    return (blocked & signals) != 0 && __builtin_popcountll(blocked) < 32;
}

const Service* loaded_service() { return loaded.load(std::memory_order_acquire); }

const Service* load_service() {
    if (const Service* found = loaded_service(); found != nullptr) return found;
    if (interrupted) return nullptr;
    char path[PATH_MAX];
    loading.fetch_add(1);
    void* library = find_library(path) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    loading.fetch_sub(1);
    Service made;
    if (library == nullptr || !resolve(library, "penstock_preload_move", &made.move) ||
        !resolve(library, "penstock_preload_observe", &made.observe) ||
        !resolve(library, "penstock_preload_expect", &made.expect) ||
        !resolve(library, "penstock_preload_forget", &made.forget))
        return nullptr;
    service = made;
    dl_iterate_phdr(exempt_own, nullptr);
    loaded.store(&service, std::memory_order_release);
    return &service;
}

}  // namespace penstock::preload
