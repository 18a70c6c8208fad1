#include "device_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "descriptors.h"
#include "next.h"
#include "service_library.h"

namespace penstock::preload {
namespace {

// Returns whether `name` is in the list of mapped files. Takes no lock: a handler of SIGSEGV may
// probe memory by a write, while its thread is in the loader.
bool is_mapped(const char* name) {
    const int fd = kernel::openat(AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return false;
    char text[4096];
    const size_t size = strlen(name);
    size_t kept = 0;
    bool found = size >= sizeof text;
    for (ssize_t got; !found && (got = kernel::read(fd, text + kept, sizeof text - kept)) > 0;) {
        const size_t end = kept + static_cast<size_t>(got);
        found = memmem(text, end, name, size) != nullptr;
        kept = end < size ? end : size;  // the name may lie across two reads
        memmove(text, text + end - kept, kept);
    }
    kernel::close(fd);
    return found;
}

// Returns whether the program has loaded a CUDA driver: else it has no device memory.
bool has_driver() {
    const char* name = getenv("PENSTOCK_LIBCUDA");
    return is_mapped(name == nullptr || *name == '\0' ? "/libcuda.so" : name);
}

// Returns the service if the call may be one with device memory. Handlers of faults write from
// addresses that may be bad, to probe them.
const Service* service_for_device() {
    constexpr uint64_t kFaults = uint64_t{1} << (SIGSEGV - 1) | uint64_t{1} << (SIGBUS - 1) |
                                 uint64_t{1} << (SIGILL - 1) | uint64_t{1} << (SIGFPE - 1) |
                                 uint64_t{1} << (SIGABRT - 1);
    if (is_child_of_vfork() || may_be_handler(kFaults)) return nullptr;
    const Service* service = loaded_service();
    return service != nullptr || !has_driver() ? service : load_service();
}

void note_device_memory(const void* memory, size_t size) {
    static std::atomic<unsigned> turn{0};
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    DeviceRange&
        range = device_ranges[turn.fetch_add(1, std::memory_order_relaxed) % kDeviceRanges];
    range.begin.store(begin, std::memory_order_relaxed);
    range.end.store(begin + size, std::memory_order_relaxed);
    has_device_ranges.store(true, std::memory_order_relaxed);
}

// Copies an element of the program's list, which may be at an address that cannot be read.
bool copy_piece(const iovec* from, iovec* to) {
    const iovec here{to, sizeof *to}, there{const_cast<iovec*>(from), sizeof *from};
    if (kernel::call(SYS_process_vm_readv, getpid(), &here, 1, &there, 1, 0) == sizeof *to)
        return true;
    errno = EFAULT;
    return false;
}

ssize_t move_host_memory(int fd, void* memory, size_t size, off_t offset, bool write) {
    if (offset < 0) return kernel::call(write ? SYS_write : SYS_read, fd, memory, size);
    return kernel::call(write ? SYS_pwrite64 : SYS_pread64, fd, memory, size, offset);
}

}  // namespace

ssize_t move_device_memory(int fd, void* memory, size_t size, off_t offset, bool write) {
    const Service* service = service_for_device();
    if (service == nullptr || memory == nullptr) {
        errno = EFAULT;
        return -1;
    }
    const int error = errno;
    const ssize_t moved = service->move(fd, memory, size, offset, write);
    if (moved > 0 && !may_be_device_memory(memory)) note_device_memory(memory, size);
    if (moved >= 0) errno = error;
    return moved;
}

ssize_t move_pieces(int fd, const iovec* pieces, int count, off_t offset, bool write) {
    const int error = errno;
    size_t moved = 0;
    for (int i = 0; i < count; ++i) {
        iovec piece{};
        ssize_t done = copy_piece(pieces + i, &piece) ? 0 : -1;
        if (done == 0 && piece.iov_len == 0) continue;
        const off_t at = offset < 0 ? -1 : offset + static_cast<off_t>(moved);
        if (done == 0) done = move_host_memory(fd, piece.iov_base, piece.iov_len, at, write);
        if (done < 0 && errno == EFAULT)
            done = move_device_memory(fd, piece.iov_base, piece.iov_len, at, write);
        if (done < 0 && moved == 0) return -1;
        if (done < 0) break;
        moved += static_cast<size_t>(done);
        if (static_cast<size_t>(done) < piece.iov_len) break;
    }
    errno = error;
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
