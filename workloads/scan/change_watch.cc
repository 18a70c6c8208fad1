// inotify and poll; see change_watch.h.
#include "scan/change_watch.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>

namespace penstock::scan {
namespace {

// IN_ATTRIB tells of a name that was removed while the file is open, and of new permissions.
constexpr uint32_t kFileEvents = IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF;
constexpr uint32_t kFolderEvents = IN_CREATE | IN_DELETE | IN_MOVE | IN_ATTRIB | IN_ONLYDIR;

std::string folder_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    if (slash == path.npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

ChangeWatch::ChangeWatch() : events_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    if (events_ < 0) error_number_ = errno;
}

ChangeWatch::~ChangeWatch() {
    if (events_ >= 0) close(events_);
}

void ChangeWatch::add_folder_of(const std::string& path) {
    if (events_ < 0) return;
    // A folder that is missing or closed to this user is no fault of inotify.
    const int watch = inotify_add_watch(events_, folder_of(path).c_str(), kFolderEvents);
    if (watch < 0 && (errno == ENOSPC || errno == ENOMEM)) error_number_ = errno;
}

int ChangeWatch::add_file(int descriptor) {
    if (events_ < 0) return kNone;
    const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
    const int watch = inotify_add_watch(events_, link.c_str(), kFileEvents);
    if (watch < 0) error_number_ = errno;
    return watch < 0 ? kNone : watch;
}

void ChangeWatch::remove(int watch) {
    if (watch != kNone) inotify_rm_watch(events_, watch);
}

bool ChangeWatch::wait(std::chrono::milliseconds limit, int output) const {
    pollfd wanted[] = {{events_, POLLIN, 0}, {output, 0, 0}};
    const int count = poll(wanted, 2, static_cast<int>(limit.count()));
    if (count <= 0) return true;
    alignas(inotify_event) char events[16 << 10];
    if ((wanted[0].revents & POLLIN) != 0)
        while (read(events_, events, sizeof events) > 0) {
        }
    return (wanted[1].revents & (POLLERR | POLLHUP)) == 0;
}

}  // namespace penstock::scan
