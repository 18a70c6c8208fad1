// Opens regular files only, without ever waiting for the other end of a pipe or waking a device.
#include "storage/descriptor_file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <utility>

namespace penstock::storage {

namespace {

constexpr int64_t kSecond = 1'000'000'000;

// What a file that is not regular is refused with.
Status check_regular(mode_t mode) {
    switch (mode & S_IFMT) {
        case S_IFREG:
            return {};
        case S_IFDIR:
            return {EISDIR, "open", "a directory holds no bytes to read"};
        case S_IFIFO:
        case S_IFSOCK:
            return {ESPIPE, "open", "a pipe or socket cannot be read at offsets"};
        default:
            return {ENOTSUP, "open", "a device, not a regular file"};
    }
}

const char* explain_open(int error) {
    switch (error) {
        case ENOENT:
            return "there is no such file";
        case EACCES:
        case EPERM:
            return "this user may not read it";
        case EMFILE:
        case ENFILE:
            return "too many open files (ulimit -n)";
        case ELOOP:
            return "a loop of symbolic links";
        default:
            return "the file cannot be opened";
    }
}

Status fail_open(int error) { return {error, "open", explain_open(error)}; }

int64_t to_ns(const statx_timestamp& time) {
    return time.tv_sec * kSecond + static_cast<int64_t>(time.tv_nsec);
}

Identity to_identity(const struct statx& state) {
    Identity identity;
    identity.device = makedev(state.stx_dev_major, state.stx_dev_minor);
    identity.inode = state.stx_ino;
    identity.size = state.stx_size;
    identity.mtime_ns = to_ns(state.stx_mtime);
    identity.ctime_ns = to_ns(state.stx_ctime);
    return identity;
}

// A generation tells a new file from the deleted one whose inode number it got. 0 where it is not
// offered.
uint64_t inode_generation(int descriptor) {
    long generation = 0;  // the ioctl's declared type; file systems store an int
    if (ioctl(descriptor, FS_IOC_GETVERSION, &generation) != 0) return 0;
    return static_cast<uint32_t>(generation);
}

// Closes the descriptor unless it is released.
class ScopedDescriptor {
public:
    explicit ScopedDescriptor(int descriptor) : descriptor_(descriptor) {}
    ~ScopedDescriptor() {
        if (descriptor_ >= 0) close(descriptor_);
    }
    ScopedDescriptor(const ScopedDescriptor&) = delete;
    ScopedDescriptor& operator=(const ScopedDescriptor&) = delete;

    [[nodiscard]] int get() const { return descriptor_; }
    int release() { return std::exchange(descriptor_, -1); }

private:
    int descriptor_;
};

int open_retrying(const char* path, int flags) {
    int descriptor;
    do {
        descriptor = ::open(path, flags);
    } while (descriptor < 0 && errno == EINTR);
    return descriptor;
}

}  // namespace

Result<std::shared_ptr<File>> DescriptorFile::open(const std::string& path, int flags) {
    if (flags != O_RDONLY) return Status{EINVAL, "open", "files are opened for reading only"};
    if (path.find('\0') != std::string::npos) {
        return Status{EINVAL, "open", "a NUL byte in the path"};
    }
    // Looked at before it is opened: opening a device can do things (a tape rewinds, a watchdog
    // starts).
    struct stat before {};
    if (::stat(path.c_str(), &before) != 0) return fail_open(errno);
    if (Status status = check_regular(before.st_mode); !status.ok()) return status;

    // O_NONBLOCK in case a FIFO has taken the name since.
    ScopedDescriptor descriptor(
        open_retrying(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (descriptor.get() < 0) return fail_open(errno);
    struct statx state {};
    if (statx(descriptor.get(), "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_DIOALIGN, &state) !=
        0) {
        return Status{errno, "statx", "the open file tells no size"};
    }
    if (Status status = check_regular(state.stx_mode); !status.ok()) return status;
    // With O_NONBLOCK left on, io_uring answers EAGAIN for bytes that are not cached.
    if (fcntl(descriptor.get(), F_SETFL, 0) != 0) {
        return Status{errno, "fcntl", "the open file keeps its flags"};
    }

    Identity identity = to_identity(state);
    identity.generation = inode_generation(descriptor.get());
    DirectAlignment alignment;
    if ((state.stx_mask & STATX_DIOALIGN) != 0) {
        alignment = {state.stx_dio_offset_align, state.stx_dio_mem_align};
        if (alignment.offset > kOffsetAlignmentMax || alignment.memory > kMemoryAlignmentMax)
            alignment = {};
    }
    return std::shared_ptr<File>(new DescriptorFile(identity, alignment, descriptor.release()));
}

DescriptorFile::~DescriptorFile() {
    if (direct_descriptor_ >= 0) close(direct_descriptor_);
    close(descriptor());
}

// By the descriptor and not by the name, which may be gone or stand for another file.
int DescriptorFile::direct_descriptor() const {
    const int known = direct_descriptor_.load(std::memory_order_acquire);
    if (known >= 0 || direct_alignment().offset == 0) return known;
    const std::lock_guard lock(direct_mutex_);
    const int meanwhile = direct_descriptor_.load(std::memory_order_relaxed);
    if (meanwhile >= 0) return meanwhile;
    const std::string name = "/proc/self/fd/" + std::to_string(descriptor());
    const int opened = open_retrying(name.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (opened < 0) return -errno;  // another time there may be a descriptor left
    direct_descriptor_.store(opened, std::memory_order_release);
    return opened;
}

void DescriptorFile::announce(uint64_t offset, uint64_t size) const {
    (void)posix_fadvise(descriptor(), static_cast<off_t>(offset), static_cast<off_t>(size),
                        POSIX_FADV_WILLNEED);
}

Status DescriptorFile::stat(Identity* out) const {
    struct statx state {};
    if (statx(descriptor(), "", AT_EMPTY_PATH, STATX_BASIC_STATS, &state) != 0) {
        return {errno, "statx", "the open file tells no size"};
    }
    *out = to_identity(state);
    out->generation = identity().generation;  // an inode keeps it for as long as it is open
    return {};
}

}  // namespace penstock::storage
