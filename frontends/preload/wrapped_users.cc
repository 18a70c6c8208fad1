// Wrappers of the calls by which a program becomes another user. The file cache has bytes of files
// that the other user may not read, so the program leaves it before.
#include "wrapped_users.h"

#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <initializer_list>

#include "cached_files.h"
#include "wrap.h"

namespace penstock::preload {
namespace {

// Leaves the cache if one of the numbers is another user's. -1 stands for no change.
void leave_to(std::initializer_list<uid_t> users) {
    if (!internal::caching.load(std::memory_order_relaxed)) return;
    for (const uid_t user : users)
        if (user != static_cast<uid_t>(-1) && user != geteuid()) return leave_cache();
}

}  // namespace

void leave_before(long number, const long* words) {
    const auto user = [words](int i) { return static_cast<uid_t>(words[i]); };
    switch (number) {
        case SYS_setuid:
        case SYS_setfsuid:
            return leave_to({user(0)});
        case SYS_setreuid:
            return leave_to({user(0), user(1)});
        case SYS_setresuid:
            return leave_to({user(0), user(1), user(2)});
    }
}

WRAP(int, setuid, (uid_t user)) {
    const Next* libc = next();
    leave_to({user});
    return libc->setuid(user);
}

WRAP(int, seteuid, (uid_t user)) {
    const Next* libc = next();
    leave_to({user});
    return libc->seteuid(user);
}

WRAP(int, setreuid, (uid_t real, uid_t effective)) {
    const Next* libc = next();
    leave_to({real, effective});
    return libc->setreuid(real, effective);
}

WRAP(int, setresuid, (uid_t real, uid_t effective, uid_t saved)) {
    const Next* libc = next();
    leave_to({real, effective, saved});
    return libc->setresuid(real, effective, saved);
}

WRAP(int, setfsuid, (uid_t user)) {
    const Next* libc = next();
    leave_to({user});
    return libc->setfsuid(user);
}

}  // namespace penstock::preload
