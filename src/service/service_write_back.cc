// Files that the host has written back, and what kernels have left that is dropped: by kernels of
// our own.
#include <cerrno>

#include "page_cache/invalidation.h"
#include "service/drop_held.h"
#include "service/service.h"
#include "service/write_back_file.h"

namespace penstock::service {
namespace {

// Storage may be slow; where the host is dead the kernel's own waits end long before.
constexpr std::chrono::hours kWriteBackLimit{1};

constexpr std::chrono::seconds kDropHeldLimit{60};

}  // namespace

Result<Service::Held> Service::drop_held() {
    Held held;
    if (device_->properties().host_addressable) {
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
