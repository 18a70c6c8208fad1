// The identity of one thread. The C library would change that of all threads, so system calls are
// made here.
#include "caller.h"

#include <sched.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace penstock::cache_service {
namespace {

// Returns whether the mask of new files is this thread's alone.
bool has_own_mask() {
    thread_local const bool own = unshare(CLONE_FS) == 0;
    return own;
}

void set_groups(const std::vector<gid_t>& groups) {
    (void)syscall(SYS_setgroups, groups.size(), groups.data());
}

}  // namespace

AsCaller::AsCaller(fuse_req_t request)
    : caller_(*fuse_req_ctx(request)), mask_(caller_.umask), masked_(has_own_mask()) {
    if (masked_) umask(mask_);
    if (served(request).as_callers && (caller_.uid != 0 || caller_.gid != 0))
        take_identity(request);
}

void AsCaller::take_identity(fuse_req_t request) {
    constexpr int kGroupsMax = 64;  // most have fewer; more take a second look
    std::vector<gid_t> groups(kGroupsMax);
    int count = fuse_req_getgroups(request, kGroupsMax, groups.data());
    if (count > kGroupsMax) {
        groups.resize(static_cast<size_t>(count));
        count = fuse_req_getgroups(request, count, groups.data());
    }
    groups.resize(static_cast<size_t>(count < 0 ? 0 : count));
    const int own = getgroups(0, nullptr);
    groups_.resize(static_cast<size_t>(own < 0 ? 0 : own));
    if (own > 0) (void)getgroups(own, groups_.data());
    changed_ = true;
    set_groups(groups);
    setfsgid(caller_.gid);
    setfsuid(caller_.uid);  // last, as it gives up the right to the others
}

AsCaller::~AsCaller() {
    if (changed_) {
        setfsuid(geteuid());
        setfsgid(getegid());
        set_groups(groups_);
    }
    if (masked_) umask(0);
}

}  // namespace penstock::cache_service
