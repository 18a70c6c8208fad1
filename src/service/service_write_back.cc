// Files that the host has written back: by a kernel of our own.
#include <cerrno>

#include "service/service.h"
#include "service/write_back_file.h"

namespace penstock::service {
namespace {

// Storage may be slow; where the host is dead the kernel's own waits end long before.
constexpr std::chrono::hours kWriteBackLimit{1};

}  // namespace

Status Service::write_back(Descriptor file, bool last) {
    if (write_back_ == nullptr)
        return {ENOSYS, "write-back", "the library's kernel that writes back is missing"};
    const std::lock_guard lock(write_back_mutex_);
    unsigned long long error = 0;
    if (Status status = write_back_->run<decltype(write_back_file)>(
            kWriteBackThreads, kWriteBackLimit, &error, device_state_, file, last);
        !status.ok())
        return status;
    if (error == 0) return {};
    return {static_cast<int>(error), "write-back", "pages could not be written"};
}

Status Service::write_back_all() {
    Status result;
    for (const Descriptor file : files_->written_files()) {
        const Status status = write_back(file, false);
        if (result.ok()) result = status;
    }
    return result;
}

}  // namespace penstock::service
