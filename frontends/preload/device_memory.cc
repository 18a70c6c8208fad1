#include "device_memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "descriptors.h"

namespace penstock::preload {
namespace {

constexpr char kService[] = "libpenstock-preload-service.so";

using Move = ssize_t (*)(int, void*, size_t, off_t, bool);
using Forget = void (*)(unsigned, unsigned);
std::atomic<Move> service_move{nullptr};
std::atomic<Forget> service_forget{nullptr};

// Returns whether the program has loaded a CUDA driver: else it has no device memory.
bool has_driver() {
    const char* name = getenv("PENSTOCK_LIBCUDA");
    if (name == nullptr || *name == '\0') name = "libcuda.so.1";
    void* driver = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (driver != nullptr) dlclose(driver);
    return driver != nullptr;
}

// Loads the service, which lies beside this library. Any number of threads may do so at once.
Move load_service() {
    if (Move loaded = service_move.load(std::memory_order_acquire); loaded != nullptr)
        return loaded;
    Dl_info own;
    char path[PATH_MAX];
    if (!has_driver() || dladdr(kService, &own) == 0) return nullptr;
    const char* slash = strrchr(own.dli_fname, '/');
    const size_t folder = slash == nullptr ? 0 : static_cast<size_t>(slash + 1 - own.dli_fname);
    if (folder + sizeof kService > sizeof path) return nullptr;
    memcpy(path, own.dli_fname, folder);
    memcpy(path + folder, kService, sizeof kService);
    void* service = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (service == nullptr) return nullptr;
    service_forget.store(reinterpret_cast<Forget>(dlsym(service, "penstock_preload_forget")),
                         std::memory_order_release);
    const auto found = reinterpret_cast<Move>(dlsym(service, "penstock_preload_move"));
    service_move.store(found, std::memory_order_release);
    return found;
}

void lower(std::atomic<uintptr_t>& bound, uintptr_t to) {
    uintptr_t now = bound.load(std::memory_order_relaxed);
    while (to < now && !bound.compare_exchange_weak(now, to)) {
    }
}

void raise(std::atomic<uintptr_t>& bound, uintptr_t to) {
    uintptr_t now = bound.load(std::memory_order_relaxed);
    while (to > now && !bound.compare_exchange_weak(now, to)) {
    }
}

ssize_t move_host_memory(int fd, void* memory, size_t size, off_t offset, bool write) {
    if (offset < 0) return syscall(write ? SYS_write : SYS_read, fd, memory, size);
    return syscall(write ? SYS_pwrite64 : SYS_pread64, fd, memory, size, offset);
}

}  // namespace

ssize_t move_device_memory(int fd, void* memory, size_t size, off_t offset, bool write) {
    const Move move = is_child_of_vfork() ? nullptr : load_service();
    if (move == nullptr || memory == nullptr) {
        errno = EFAULT;
        return -1;
    }
    const ssize_t moved = move(fd, memory, size, offset, write);
    if (moved > 0) {
        lower(device_memory_begin, reinterpret_cast<uintptr_t>(memory));
        raise(device_memory_end, reinterpret_cast<uintptr_t>(memory) + size);
    }
    return moved;
}

ssize_t move_pieces(int fd, const iovec* pieces, int count, off_t offset, bool write) {
    size_t moved = 0;
    for (int i = 0; i < count; ++i) {
        if (pieces[i].iov_len == 0) continue;
        const off_t at = offset < 0 ? -1 : offset + static_cast<off_t>(moved);
        ssize_t done = move_host_memory(fd, pieces[i].iov_base, pieces[i].iov_len, at, write);
        if (done < 0 && errno == EFAULT)
            done = move_device_memory(fd, pieces[i].iov_base, pieces[i].iov_len, at, write);
        if (done < 0) return moved > 0 ? static_cast<ssize_t>(moved) : -1;
        moved += static_cast<size_t>(done);
        if (static_cast<size_t>(done) < pieces[i].iov_len) break;
    }
    return static_cast<ssize_t>(moved);
}

void release_device_files(unsigned first, unsigned last) {
    const Forget forget = service_forget.load(std::memory_order_acquire);
    if (forget == nullptr || is_child_of_vfork()) return;
    const int error = errno;
    forget(first, last);
    errno = error;
}

}  // namespace penstock::preload
