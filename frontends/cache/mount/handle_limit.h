// How many files and folders below programs may have open through a mount, so that descriptors are
// left for requests without a handle, and for others. Any thread.
//
// The last of them are a reserve, of which each gets few: each user of a mount that serves all
// users, and of root, or where there is one user, each program. The kernel tells no number of
// programs in another namespace of processes; those count as one.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace penstock::cache_service {

class HandleLimit {
public:
    // Shares out a process's `descriptors`. It outlives all that it counts.
    HandleLimit(size_t descriptors, bool serves_all_users);

    // Counts a descriptor until the last copy of the result goes. Returns null with errno EMFILE if
    // a user's thread may have no more.
    std::shared_ptr<const void> enter(uid_t user, pid_t thread);

private:
    // A user or a program.
    enum class Kind { kUser, kProgram };
    using Owner = std::pair<Kind, int64_t>;
    void leave();
    void leave(const Owner& owner);  // gives back to the reserve

    const bool serves_all_users_;
    const size_t count_max_;     // of all
    const size_t count_common_;  // beyond this the reserve begins
    std::mutex mutex_;
    size_t count_ = 0;
    std::map<Owner, size_t> of_reserve_;
};

}  // namespace penstock::cache_service
