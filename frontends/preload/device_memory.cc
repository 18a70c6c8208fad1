#include "device_memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "descriptors.h"
#include "service_library.h"

namespace penstock::preload {
namespace {

// Returns whether the program has loaded a CUDA driver: else it has no device memory.
bool has_driver() {
    const char* name = getenv("PENSTOCK_LIBCUDA");
    if (name == nullptr || *name == '\0') name = "libcuda.so.1";
    void* driver = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (driver != nullptr) dlclose(driver);
    return driver != nullptr;
}

const Service* service_for_device() {
    const Service* service = loaded_service();
    return service != nullptr || !has_driver() ? service : load_service();
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
    const Service* service = is_child_of_vfork() ? nullptr : service_for_device();
    if (service == nullptr || memory == nullptr) {
        errno = EFAULT;
        return -1;
    }
    const ssize_t moved = service->move(fd, memory, size, offset, write);
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
    const Service* service = loaded_service();
    if (service == nullptr || is_child_of_vfork()) return;
    const int error = errno;
    service->forget(first, last);
    errno = error;
}

}  // namespace penstock::preload
