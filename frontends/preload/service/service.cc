#include "service.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>

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

std::atomic<bool> uses_device{false};  // a device was opened here
std::atomic<bool> lost_device{false};  // it was in the parent, and CUDA does not survive a fork

// Returns the device whose memory this is, and keeps it open: to open one takes milliseconds.
Result<Device> device_at(const void* memory) {
    static std::mutex mutex;
    static auto* const kept = new std::set<std::shared_ptr<backend::Device>>;
    auto device = device_of(memory);
    if (!device.ok()) return device;
    uses_device.store(true, std::memory_order_relaxed);
    std::lock_guard lock(mutex);
    kept->insert(device.value().port());
    return device;
}

std::string_view signature;
ObservedFiles* observed = nullptr;

// A child of a fork begins anew: another thread may have been changing what it inherits.
[[gnu::constructor]] void watch_forks() {
    pthread_atfork(nullptr, nullptr, [] {
        lost_device.store(uses_device.load());
        observed = nullptr;
    });
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

// Returns whether the kernel takes bytes out of the descriptor only after it has moved them.
// Others, such as datagram sockets and eventfd, have dropped them when the kernel returns EFAULT.
bool keeps_bytes(int fd, mode_t mode) {
    if (S_ISREG(mode) || S_ISFIFO(mode)) return true;
    int type = 0;
    socklen_t size = sizeof type;
    return S_ISSOCK(mode) && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
           type == SOCK_STREAM;
}

// Returns the bytes that a transfer moved before its first error, or fails with the error.
ssize_t moved_before(const Status& status, const Report& report, uint64_t from) {
    const bool some = report.error_number != 0 && report.error_offset > from;
    return some ? static_cast<ssize_t>(report.error_offset - from) : fail(status.error_number());
}

ssize_t move(int fd, std::byte* memory, size_t size, off_t offset, bool write) {
    struct stat status;
    const int flags = static_cast<int>(syscall(SYS_fcntl, fd, F_GETFL, 0));
    if (flags < 0 || fstat(fd, &status) != 0) return -1;
    if ((flags & O_PATH) != 0) return fail(EBADF);
    if (!keeps_bytes(fd, status.st_mode)) return fail(EFAULT);
    const auto device = device_at(memory);
    if (!device.ok()) return fail(EFAULT);
    size = std::min(size, kCallMax);
    // Files of /proc and /sys have size 0: what a read gives depends on how often it was made.
    const bool ordinary = S_ISREG(status.st_mode) && (write || status.st_size > 0);
    if (!ordinary || (write && (flags & O_APPEND) != 0))
        return bounce(fd, memory, size, offset, write, device.value());
    const auto file = files().find(fd, status, flags, device.value());
    if (!file.ok()) return bounce(fd, memory, size, offset, write, device.value());
    const auto transfer = [&](off_t at) -> ssize_t {
        const auto from = static_cast<uint64_t>(at);
        Report report;
        const auto moved = write ? file.value()->write(memory, size, from, &report)
                                 : file.value()->read(memory, size, from, &report);
        return moved.ok() ? static_cast<ssize_t>(moved.value())
                          : moved_before(moved.status(), report, from);
    };
    return offset < 0 ? at_position(fd, size, transfer) : transfer(offset);
}

}  // namespace
}  // namespace penstock::preload

ssize_t penstock_preload_move(int fd, void* memory, size_t size, off_t offset, bool write) {
    using namespace penstock::preload;  // NOLINT(google-build-using-namespace): its own names
    if (lost_device.load(std::memory_order_relaxed)) return fail(EFAULT);
    try {
        return move(fd, static_cast<std::byte*>(memory), size, offset, write);
    } catch (const std::exception&) {  // memory is short
        return fail(ENOMEM);
    }
}

uint64_t penstock_preload_observe(int fd, unsigned meaning, off_t offset, size_t size) {
    using namespace penstock::preload;  // NOLINT(google-build-using-namespace): its own names
    try {
        if (observed == nullptr) observed = new ObservedFiles(signature);
        return observed->observe(fd, meaning, offset, size);
    } catch (const std::exception&) {  // memory is short
        return UINT64_MAX;
    }
}

void penstock_preload_expect(const char* text, size_t size) {
    penstock::preload::signature = {text, size};
}

void penstock_preload_forget(unsigned first, unsigned last) {
    penstock::preload::files().forget(first, last);
}
