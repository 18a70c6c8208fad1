#include "device_files.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

namespace penstock::preload {
namespace {

constexpr int kOwnMin = 3;  // a program that has closed a standard stream may still write to it

// Opens the file behind a descriptor of the calling thread again. Calls on the program's files go
// to the kernel: the wrappers would record them.
int open_again(int fd, int flags) {
    const std::string link = "/proc/thread-self/fd/" + std::to_string(fd);
    const int own = static_cast<int>(
        syscall(SYS_openat, AT_FDCWD, link.c_str(), flags | O_CLOEXEC, 0));
    if (own < 0 || own >= kOwnMin) return own;
    const int above = static_cast<int>(syscall(SYS_fcntl, own, F_DUPFD_CLOEXEC, kOwnMin));
    syscall(SYS_close, own);
    return above;
}

// Marks an open file as ours. Nothing asks for signals of it, so the number of its signal is free.
constexpr int kMark = 64;

bool same_file(const struct stat& status, dev_t volume, ino_t number) {
    return status.st_dev == volume && status.st_ino == number;
}

}  // namespace

bool DeviceFiles::Entry::owns() const {
    struct stat behind;
    return fstat(own, &behind) == 0 && same_file(behind, volume, number) &&
           syscall(SYS_fcntl, own, F_GETSIG, 0) == kMark;
}

bool DeviceFiles::Entry::is_of(const struct stat& status, int its_flags,
                               const std::string& its_device) const {
    return same_file(status, volume, number) && flags == its_flags && device == its_device &&
           owns();
}

void DeviceFiles::Entry::close() {
    if (owns()) {
        file.reset();
    } else {
        new std::shared_ptr<File>(std::move(file));
    }
}

Result<std::shared_ptr<File>> DeviceFiles::find(int fd, const struct stat& status, int flags,
                                                const Device& device) {
    const std::string name = device.name();
    std::lock_guard lock(mutex_);
    // One that does not match is of a former meaning, or of another device. It is closed when the
    // program closes the descriptor.
    for (auto [entry, end] = entries_.equal_range(fd); entry != end; ++entry) {
        if (entry->second.is_of(status, flags, name)) return entry->second.file;
    }
    const int own = open_again(fd, flags & (O_ACCMODE | O_SYNC | O_DSYNC | O_NOATIME));
    if (own < 0) return Status(errno, "open", "the file cannot be opened again");
    struct stat opened;
    if (fstat(own, &opened) != 0 || !same_file(opened, status.st_dev, status.st_ino)) {
        syscall(SYS_close, own);
        return Status(ESTALE, "open", "the descriptor got another meaning meanwhile");
    }
    syscall(SYS_fcntl, own, F_SETSIG, kMark);
    FileOptions options;
    if ((flags & O_DIRECT) != 0) {
        options.reading.cache = CachePolicy::kBypass;
        options.writing.cache = CachePolicy::kBypass;
    }
    auto file = File::adopt(own, device, options);
    if (!file.ok()) {
        syscall(SYS_close, own);
        return file.status();
    }
    Entry entry{status.st_dev, status.st_ino, flags,
                name,          own,           std::make_shared<File>(std::move(file.value()))};
    return entries_.emplace(fd, std::move(entry))->second.file;
}

void DeviceFiles::forget(unsigned first, unsigned last) {
    // A signal handler may close a descriptor while its thread is in find().
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    for (auto entry = entries_.begin(); entry != entries_.end();) {
        const auto fd = static_cast<unsigned>(entry->first);
        if (fd < first || fd > last) {
            ++entry;
            continue;
        }
        entry->second.close();
        entry = entries_.erase(entry);
    }
}

}  // namespace penstock::preload
