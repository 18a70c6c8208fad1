// Files that the host has written back: by a kernel of our own.
#include <cerrno>

#include "service/service.h"
#include "service/write_back_file.h"

namespace penstock::service {
namespace {

// Storage may be slow; where the host is dead the kernel's own waits end long before.
constexpr std::chrono::hours kWriteBackLimit{1};

}  // namespace

Status Service::run_write_back(Descriptor file, bool forgets) {
    if (write_back_ == nullptr)
        return {ENOSYS, "write-back", "the library's kernel that writes back is missing"};
    const std::lock_guard lock(write_back_mutex_);
    unsigned long long error = 0;
    if (Status status = write_back_->run<decltype(write_back_file)>(
            kWriteBackThreads, kWriteBackLimit, &error, device_state_, file, forgets);
        !status.ok())
        return status;
    if (error == 0) return {};
    return {static_cast<int>(error), "write-back", "pages could not be written"};
}

Status Service::close_file(Descriptor file) {
    auto answer = files_->close(file, Opener::kHost, Closing::kAsks);
    Status result;
    while (answer.ok() && answer.value() != 0) {
        Closing next = Closing::kHasForgotten;
        const bool forgets = answer.value() == kForgetFirst;
        const Status status = run_write_back(file, forgets);
        if (!forgets) next = status.ok() ? Closing::kHasWritten : Closing::kCannotWrite;
        if (result.ok()) result = status;
        answer = files_->close(file, Opener::kHost, next);
    }
    return answer.ok() ? result : answer.status();
}

Status Service::write_back_all() {
    Status result;
    for (const Descriptor file : files_->written_files()) {
        const Status status = write_back(file);
        if (result.ok()) result = status;
        // Its kernels are gone: who could try again?
        if (files_->give_up(file, status.ok())) (void)run_write_back(file, true);
    }
    return result;
}

}  // namespace penstock::service
