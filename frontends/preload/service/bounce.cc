#include "bounce.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "penstock/file.h"

namespace penstock::preload {
namespace {

constexpr size_t kPiece = 1 << 20;

// Host memory that is a file too: transfers between it and device memory take the way of all
// others, behind the work that is queued on the device.
class Staging {
public:
    explicit Staging(const Device& device) {
        const int fd = static_cast<int>(syscall(SYS_memfd_create, "penstock-bounce", 1u));
        if (fd < 0 || syscall(SYS_ftruncate, fd, kPiece) != 0) return;
        void* mapped = mmap(nullptr, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        FileOptions options;  // its bytes have one way to go, whatever the program's have
        options.route_of_environment = options.strict_of_environment = false;
        auto file = File::adopt(fd, device, options);
        if (mapped != MAP_FAILED) memory_ = static_cast<std::byte*>(mapped);
        if (file.ok()) {
            file_ = std::move(file.value());
        } else {
            syscall(SYS_close, fd);
        }
    }
    ~Staging() {
        if (memory_ != nullptr) munmap(memory_, kPiece);
    }
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    [[nodiscard]] bool ok() const { return memory_ != nullptr && !file_.closed(); }
    [[nodiscard]] std::byte* memory() const { return memory_; }
    bool to_device(std::byte* to, size_t size) { return file_.read(to, size, 0).ok(); }
    bool from_device(const std::byte* from, size_t size) { return file_.write(from, size, 0).ok(); }

private:
    std::byte* memory_ = nullptr;
    File file_;
};

ssize_t call(int fd, std::byte* host, size_t size, off_t offset, bool write) {
    if (offset < 0) return syscall(write ? SYS_write : SYS_read, fd, host, size);
    return syscall(write ? SYS_pwrite64 : SYS_pread64, fd, host, size, offset);
}

}  // namespace

ssize_t bounce(int fd, std::byte* memory, size_t size, off_t offset, bool write,
               const Device& device) {
    Staging staging(device);
    if (!staging.ok()) return errno = ENOMEM, -1;
    struct stat status;
    const bool regular = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    size_t moved = 0;
    const auto failed = [&](int error) -> ssize_t {
        errno = error;
        return moved > 0 ? static_cast<ssize_t>(moved) : -1;
    };
    while (moved < size) {
        const size_t piece = std::min(size - moved, kPiece);
        const off_t at = offset < 0 ? -1 : offset + static_cast<off_t>(moved);
        if (write && !staging.from_device(memory + moved, piece)) return failed(EFAULT);
        const ssize_t done = call(fd, staging.memory(), piece, at, write);
        if (done < 0) return failed(errno);
        if (!write && !staging.to_device(memory + moved, static_cast<size_t>(done)))
            return failed(EIO);
        moved += static_cast<size_t>(done);
        // A pipe or socket would wait for more than there is.
        if (static_cast<size_t>(done) < piece || (!write && !regular)) break;
    }
    return static_cast<ssize_t>(moved);
}

}  // namespace penstock::preload
