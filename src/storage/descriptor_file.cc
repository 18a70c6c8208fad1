// Opens regular files only. It never waits for the other end of a pipe, and never opens a device.
#include "storage/descriptor_file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/sysmacros.h>

#include <cerrno>

#include "base/file_size_signal.h"
#include "storage/system_calls.h"

namespace penstock::storage {

namespace {

constexpr int64_t kSecond = 1'000'000'000;

// Returns the error for a file that is not regular.
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
            return "this user may not open it so";
        case EROFS:
            return "the file system is read-only";
        case EEXIST:
            return "there is a file of this name";
        case ETXTBSY:
            return "a program that runs cannot be written";
        case ENOSPC:
        case EDQUOT:
            return "there is no room for another file";
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

// Leaves out the generation.
Status look(int descriptor, Identity* out) {
    struct statx state {};
    if (system::statx(descriptor, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &state) != 0)
        return {errno, "statx", "the open file tells no size"};
    *out = to_identity(state);
    return {};
}

// Returns the inode's generation, which tells a new file from a deleted one with the same inode
// number. Returns 0 if the file system does not report it.
uint64_t inode_generation(int descriptor) {
    long generation = 0;  // the ioctl's declared type; file systems store an int
    if (system::ioctl(descriptor, FS_IOC_GETVERSION, &generation) != 0) return 0;
    return static_cast<uint32_t>(generation);
}

int open_retrying(const char* path, int flags) {
    constexpr mode_t kCreatedMode = 0666;
    int descriptor;
    do {
        descriptor = system::open(path, flags, kCreatedMode);
    } while (descriptor < 0 && errno == EINTR);
    return descriptor;
}

// Checks the file before the open, because opening a device can have effects: a tape rewinds, a
// watchdog starts.
Status check_before(const std::string& path, int flags) {
    if (path.find('\0') != std::string::npos) return {EINVAL, "open", "a NUL byte in the path"};
    if ((flags & O_EXCL) != 0) return {};  // an existing file is not opened
    struct stat before {};
    if (system::stat(path.c_str(), &before) == 0) return check_regular(before.st_mode);
    if (errno == ENOENT && (flags & O_CREAT) != 0) return {};
    return fail_open(errno);
}

// Opens a file for reading too, if this user may read it, because a partial write may have to fetch
// bytes.
int open_for_all(const std::string& path, int flags, Rights* rights) {
    const int access = flags & O_ACCMODE;
    // O_NONBLOCK protects from a FIFO that has taken the name since the check.
    const int others = (flags & ~O_ACCMODE) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    *rights = {true, access != O_RDONLY, (flags & O_APPEND) != 0};
    const int descriptor = open_retrying(path.c_str(),
                                         (access == O_RDONLY ? O_RDONLY : O_RDWR) | others);
    if (descriptor >= 0 || access != O_WRONLY || errno != EACCES) return descriptor;
    rights->read = false;
    return open_retrying(path.c_str(), O_WRONLY | others);
}

}  // namespace

Result<std::shared_ptr<File>> DescriptorFile::open(const std::string& path, int flags) {
    if (Status status = check_open_flags(flags); !status.ok()) return status;
    if (Status status = check_before(path, flags); !status.ok()) return status;
    Rights rights;
    system::ScopedDescriptor descriptor(open_for_all(path, flags, &rights));
    if (descriptor.get() < 0) return fail_open(errno);
    // If O_NONBLOCK stayed set, io_uring would return EAGAIN for bytes that are not cached.
    if (system::fcntl(descriptor.get(), F_SETFL, flags & O_APPEND) != 0) {
        return Status{errno, "fcntl", "the open file keeps its flags"};
    }
    auto file = make(descriptor.get(), rights);
    if (file.ok()) descriptor.release();
    return file;
}

Result<std::shared_ptr<File>> DescriptorFile::adopt(int descriptor) {
    const int flags = system::fcntl(descriptor, F_GETFL, 0);
    if (flags < 0 || (flags & O_PATH) != 0)
        return Status{EBADF, "adopt", "not a descriptor that can be read or written"};
    // Duplicates of the descriptor share these flags, so they are not cleared.
    if ((flags & (O_DIRECT | O_NONBLOCK)) != 0)
        return Status{EINVAL, "adopt", "opened with O_DIRECT or O_NONBLOCK"};
    const int access = flags & O_ACCMODE;
    const bool append = (flags & O_APPEND) != 0 && access != O_RDONLY;
    auto file = make(descriptor, {access != O_WRONLY, access != O_RDONLY, append});
    if (file.ok() && append) static_cast<DescriptorFile&>(*file.value()).open_for_appends();
    return file;
}

// Duplicates of an adopted descriptor share its position, so appends, which read it to tell where
// they went, use a descriptor of their own. If none can be opened, another process that moves the
// shared position may make such a report wrong, but no write.
void DescriptorFile::open_for_appends() {
    const std::string name = "/proc/self/fd/" + std::to_string(descriptor());
    append_descriptor_ = open_retrying(name.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
}

Result<std::shared_ptr<File>> DescriptorFile::borrow(int descriptor) {
    const int flags = system::fcntl(descriptor, F_GETFL, 0);
    if (flags < 0 || (flags & O_PATH) != 0 || (flags & O_ACCMODE) == O_WRONLY)
        return Status{EBADF, "borrow", "not a descriptor that can be read"};
    if ((flags & O_DIRECT) != 0)
        return Status{EINVAL, "borrow", "its reads do not use the OS page cache (O_DIRECT)"};
    return make(descriptor, {}, /*owns=*/false);
}

// Does not close the descriptor if it fails.
Result<std::shared_ptr<File>> DescriptorFile::make(int descriptor, Rights rights, bool owns) {
    struct statx state {};
    if (system::statx(descriptor, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_DIOALIGN, &state) !=
        0) {
        return Status{errno, "statx", "the open file tells no size"};
    }
    if (Status status = check_regular(state.stx_mode); !status.ok()) return status;
    Identity identity = to_identity(state);
    identity.generation = inode_generation(descriptor);
    DirectAlignment alignment;
    if ((state.stx_mask & STATX_DIOALIGN) != 0) {
        alignment = {state.stx_dio_offset_align, state.stx_dio_mem_align};
        if (alignment.offset > kOffsetAlignmentMax || alignment.memory > kMemoryAlignmentMax)
            alignment = {};
    }
    return std::shared_ptr<File>(new DescriptorFile(identity, alignment, descriptor, rights, owns));
}

Status DescriptorFile::unlink(const std::string& path) {
    if (path.find('\0') != std::string::npos) return {EINVAL, "unlink", "a NUL byte in the path"};
    if (system::unlink(path.c_str()) == 0) return {};
    return {errno, "unlink", "the name cannot be taken away"};
}

DescriptorFile::~DescriptorFile() {
    if (direct_descriptor_ >= 0) system::close(direct_descriptor_);
    if (append_descriptor_ >= 0) system::close(append_descriptor_);
    if (owns_) system::close(descriptor());
}

// Opens through the descriptor, because the name may be gone or stand for another file.
int DescriptorFile::direct_descriptor() const {
    const int known = direct_descriptor_.load(std::memory_order_acquire);
    if (known >= 0 || direct_alignment().offset == 0) return known;
    const std::lock_guard lock(direct_mutex_);
    const int meanwhile = direct_descriptor_.load(std::memory_order_relaxed);
    if (meanwhile >= 0) return meanwhile;
    const std::string name = "/proc/self/fd/" + std::to_string(descriptor());
    const int access = !rights().write ? O_RDONLY : rights().read ? O_RDWR : O_WRONLY;
    const int opened = open_retrying(name.c_str(), access | O_CLOEXEC | O_DIRECT);
    if (opened < 0) return -errno;  // a later call may find a free descriptor
    direct_descriptor_.store(opened, std::memory_order_release);
    return opened;
}

void DescriptorFile::announce(uint64_t offset, uint64_t size) const {
    (void)system::fadvise(descriptor(), static_cast<off_t>(offset), static_cast<off_t>(size),
                          POSIX_FADV_WILLNEED);
}

void DescriptorFile::read_ahead(bool ahead) const {
    (void)system::fadvise(descriptor(), 0, 0, ahead ? POSIX_FADV_NORMAL : POSIX_FADV_RANDOM);
}

Status DescriptorFile::sync(bool data_only) {
    int result;
    do {
        result = data_only ? system::fdatasync(descriptor()) : system::fsync(descriptor());
    } while (result != 0 && errno == EINTR);
    if (result == 0) return {};
    return {errno, data_only ? "fdatasync" : "fsync", "what was written may not have been kept"};
}

Status DescriptorFile::truncate(uint64_t size) {
    if (!rights().write) return {EBADF, "ftruncate", "the file is not open for writing"};
    if (size > INT64_MAX) return {EINVAL, "ftruncate", "no file is so long"};
    base::FileSizeSignal signal;
    int result;
    do {
        result = system::ftruncate(descriptor(), static_cast<off_t>(size));
    } while (result != 0 && errno == EINTR);
    if (result == 0) return {};
    const int error = errno;
    if (error == EFBIG) signal.take();
    return {error, "ftruncate", error == EFBIG ? "no file may be so long" : "the size stays"};
}

Status DescriptorFile::stat(Identity* out) const {
    if (Status status = look(descriptor(), out); !status.ok()) return status;
    out->generation = identity().generation;  // an inode keeps it while it is open
    return {};
}

Status identify(int descriptor, Identity* out) {
    if (Status status = look(descriptor, out); !status.ok()) return status;
    out->generation = inode_generation(descriptor);
    return {};
}

bool is_racy(const Identity& identity) {
    timespec now{}, tick{};
    clock_gettime(CLOCK_REALTIME, &now);
    clock_getres(CLOCK_REALTIME_COARSE, &tick);
    const int64_t now_ns = int64_t{now.tv_sec} * kSecond + now.tv_nsec;
    const int64_t tick_ns = int64_t{tick.tv_sec} * kSecond + tick.tv_nsec;
    const auto within = [&](int64_t time_ns) {  // a time in the future is not from this clock
        return now_ns - time_ns < 2 * tick_ns && time_ns - now_ns < 2 * tick_ns;
    };
    return within(identity.mtime_ns) || within(identity.ctime_ns);
}

}  // namespace penstock::storage
