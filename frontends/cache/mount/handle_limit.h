// How many files and folders below programs may have open through a mount, so that descriptors are
// left for requests without a handle, and for other programs. Any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace penstock::cache_service {

class HandleLimit {
public:
    // Shares out a process's `descriptors`. It outlives all that it counts.
    explicit HandleLimit(size_t descriptors);

    // Counts a descriptor until the last copy of the result goes. Returns null with errno EMFILE if
    // a program, which is known by its thread's number, may have no more.
    std::shared_ptr<const void> enter(pid_t program);

private:
    void leave(pid_t program);

    const size_t count_max_;  // of all programs
    // From here on only programs that have few get one more.
    const size_t count_crowded_;
    std::mutex mutex_;
    size_t count_ = 0;
    std::unordered_map<pid_t, size_t> counts_;
};

}  // namespace penstock::cache_service
