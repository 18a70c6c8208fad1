// Runs the library's own kernels that write files back for the host, and that drop what kernels
// have left.
#include <cerrno>

#include "page_cache/invalidation.h"
#include "service/drop_held.h"
#include "service/service.h"

namespace penstock::service {
namespace {

// The storage may be slow. If the host is dead, the kernel's own waits end long before this.
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
    if (!abort_cause().empty()) return held;  // no thread waits for frames any more
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

// Runs the kernel and returns its make_file_result(). After an error it has not run to its end.
Result<uint64_t> Service::run(FileWork work, Descriptor file) {
    if (write_back_ == nullptr)
        return Status{ENOSYS, "write-back", "the library's kernel that writes back is missing"};
    const std::lock_guard lock(write_back_mutex_);
    unsigned long long result = 0;
    if (Status status = write_back_->run<decltype(write_back_file)>(
            kWriteBackThreads, kWriteBackLimit, &result, device_state_, file, work);
        !status.ok())
        return status;
    return uint64_t{result};
}

namespace {

Status written_status(uint64_t result) {
    if (result >> 32 == 0) return {};
    return {static_cast<int>(result >> 32), "write-back", "pages could not be written"};
}

}  // namespace

Status Service::write_back(Descriptor file) {
    const auto result = run(FileWork::kWriteBack, file);
    return result.ok() ? written_status(result.value()) : result.status();
}

// Closes a file whose written data is lost; its slot is not opened again.
void Service::close_without_kernel(Descriptor file, Opener opener) {
    auto answer = files_->close(file, opener, Closing::kCannotWrite);
    while (answer.ok() && answer.value() != 0) {
        const bool forgets = answer.value() == kForgetFirst;
        answer = files_->close(file, opener, forgets ? Closing::kHasLeft : Closing::kCannotWrite);
    }
}

// Only the last writer of a file needs a kernel.
Status Service::close_file(Descriptor file) {
    const auto answer = files_->close(file, Opener::kHost, Closing::kAsks);
    if (!answer.ok() || answer.value() == 0) return answer.status();
    const auto result = run(FileWork::kClose, file);
    if (result.ok() && (result.value() & 0xffffffff) == 0) return written_status(result.value());
    close_without_kernel(file, Opener::kHost);
    if (!result.ok()) return result.status();
    const Status written = written_status(result.value());
    if (!written.ok()) return written;
    return {static_cast<int>(result.value() & 0xffffffff), "close", "the kernel that closes ended"};
}

Status Service::write_back_all() {
    Status result;
    for (const Descriptor file : files_->written_files()) {
        const auto given_up = run(FileWork::kGiveUp, file);
        if (!given_up.ok() || (given_up.value() & 0xffffffff) != 0)
            close_without_kernel(file, Opener::kReclaim);
        const Status status = given_up.ok() ? written_status(given_up.value()) : given_up.status();
        if (result.ok()) result = status;
    }
    return result;
}

}  // namespace penstock::service
