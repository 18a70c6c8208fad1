// Files that the host has written back, and what kernels have left that is dropped: by kernels of
// our own.
#include <cerrno>

#include "page_cache/invalidation.h"
#include "service/drop_held.h"
#include "service/service.h"

namespace penstock::service {
namespace {

// Storage may be slow; where the host is dead the kernel's own waits end long before.
constexpr std::chrono::hours kWriteBackLimit{1};

constexpr std::chrono::seconds kDropHeldLimit{60};

}  // namespace

Result<Service::Held> Service::drop_held() {
    Held held;
    if (device_->properties().host_addressable) {
        const std::lock_guard lock(write_back_mutex_);
        held.views = views_held(state_->held_pins);
        held.calls = page_cache::drop_held(*state_);
        return held;
    }
    if (!abort_cause().empty()) return held;  // nothing waits for frames any more
    if (drop_held_ == nullptr)
        return Status{ENOSYS, "reclaim", "the library's kernel that drops pins is missing"};
    unsigned long long found = 0;
    const std::lock_guard lock(write_back_mutex_);
    if (Status status = drop_held_->run<decltype(service::drop_held)>(
            kDropHeldThreads, kDropHeldLimit, &found, device_state_);
        !status.ok())
        return status;
    held.views = found >> 32;
    held.calls = found & 0xffffffff;
    return held;
}

Status Service::run(FileWork work, Descriptor file) {
    if (write_back_ == nullptr)
        return {ENOSYS, "write-back", "the library's kernel that writes back is missing"};
    const std::lock_guard lock(write_back_mutex_);
    unsigned long long error = 0;
    if (Status status = write_back_->run<decltype(write_back_file)>(
            kWriteBackThreads, kWriteBackLimit, &error, device_state_, file, work);
        !status.ok())
        return status;
    if (error == 0) return {};
    return {static_cast<int>(error), "write-back", "pages could not be written"};
}

// As gclose.
Status Service::close_file(Descriptor file) {
    auto answer = files_->close(file, Opener::kHost, Closing::kAsks);
    Status result;
    while (answer.ok() && answer.value() == kWriteBackFirst) {
        const Status status = write_back(file);
        if (result.ok()) result = status;
        const Closing next = status.ok() ? Closing::kHasWritten : Closing::kCannotWrite;
        if (status.ok() && !files_->is_scratch(file)) {
            answer = files_->close(file, Opener::kHost, next);
            continue;
        }
        const bool held = run(FileWork::kHold, file).ok();
        answer = files_->close(file, Opener::kHost, next);
        const bool forgets = answer.ok() && answer.value() == kForgetFirst;
        if (held) (void)run(forgets ? FileWork::kForget : FileWork::kRelease, file);
        if (forgets) answer = files_->close(file, Opener::kHost, Closing::kHasForgotten);
    }
    return answer.ok() ? result : answer.status();
}

Status Service::write_back_all() {
    Status result;
    for (const Descriptor file : files_->written_files()) {
        const Status status = write_back(file);
        if (result.ok()) result = status;
        if (status.ok() && !files_->is_scratch(file)) continue;
        // Its kernels are gone: who could try again?
        const bool held = run(FileWork::kHold, file).ok();
        const bool forgets = files_->give_up(file, status.ok());
        if (held) (void)run(forgets ? FileWork::kForget : FileWork::kRelease, file);
    }
    return result;
}

}  // namespace penstock::service
