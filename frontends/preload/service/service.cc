#include "service.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <memory>
#include <mutex>
#include <set>

#include "bounce.h"
#include "device_files.h"
#include "observed_files.h"
#include "penstock/device.h"
#include "penstock/file.h"

namespace penstock::preload {
namespace {

constexpr size_t kCallMax = 0x7ffff000;  // bytes of one call, as of read(2)

// Never destroyed: threads of the program may be in a call when it ends.
DeviceFiles& files() {
    static auto* const all = new DeviceFiles;
    return *all;
}

// Returns the device whose memory this is, and keeps it open: to open one takes milliseconds.
Result<Device> device_at(const void* memory) {
    static std::mutex mutex;
    static auto* const kept = new std::set<std::shared_ptr<backend::Device>>;
    auto device = device_of(memory);
    if (!device.ok()) return device;
    std::lock_guard lock(mutex);
    kept->insert(device.value().port());
    return device;
}

// A child of a fork has none of the threads that transfer, and no CUDA.
std::atomic<bool> forked{false};
[[gnu::constructor]] void watch_forks() {
    pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
}

ssize_t fail(int error) {
    errno = error;
    return -1;
}

// Moves bytes at the position of a descriptor. The range is taken in one step, so that calls of
// several threads move different ones.
template <class Move>
ssize_t at_position(int fd, size_t size, Move move) {
    const off_t end = syscall(SYS_lseek, fd, size, SEEK_CUR);
    if (end < 0) return -1;
    const ssize_t moved = move(end - static_cast<off_t>(size));
    const int error = errno;
    const off_t back = std::max<ssize_t>(moved, 0) - static_cast<off_t>(size);
    if (back != 0) syscall(SYS_lseek, fd, back, SEEK_CUR);
    errno = error;
    return moved;
}

ssize_t move(int fd, std::byte* memory, size_t size, off_t offset, bool write) {
    const auto device = device_at(memory);
    if (!device.ok()) return fail(EFAULT);
    struct stat status;
    const int flags = static_cast<int>(syscall(SYS_fcntl, fd, F_GETFL, 0));
    if (flags < 0 || fstat(fd, &status) != 0) return -1;
    size = std::min(size, kCallMax);
    // Files of /proc and /sys have size 0: what a read gives depends on how often it was made.
    const bool ordinary = S_ISREG(status.st_mode) && (write || status.st_size > 0);
    if (!ordinary || (write && (flags & O_APPEND) != 0))
        return bounce(fd, memory, size, offset, write, device.value());
    const auto file = files().find(fd, status, flags, device.value());
    if (!file.ok()) return bounce(fd, memory, size, offset, write, device.value());
    const auto transfer = [&](off_t at) -> ssize_t {
        const auto from = static_cast<uint64_t>(at);
        const auto moved = write ? file.value()->write(memory, size, from)
                                 : file.value()->read(memory, size, from);
        return moved.ok() ? static_cast<ssize_t>(moved.value())
                          : fail(moved.status().error_number());
    };
    return offset < 0 ? at_position(fd, size, transfer) : transfer(offset);
}

}  // namespace
}  // namespace penstock::preload

ssize_t penstock_preload_move(int fd, void* memory, size_t size, off_t offset, bool write) {
    using namespace penstock::preload;  // NOLINT(google-build-using-namespace): its own names
    if (forked.load(std::memory_order_relaxed)) return fail(EFAULT);
    try {
        return move(fd, static_cast<std::byte*>(memory), size, offset, write);
    } catch (const std::exception&) {  // memory is short
        return fail(ENOMEM);
    }
}

uint64_t penstock_preload_observe(int fd, unsigned meaning, off_t offset, size_t size) {
    static auto* const observed = new penstock::preload::ObservedFiles;
    try {
        return observed->observe(fd, meaning, offset, size);
    } catch (const std::exception&) {  // memory is short
        return UINT64_MAX;
    }
}

void penstock_preload_forget(unsigned first, unsigned last) {
    penstock::preload::files().forget(first, last);
}
