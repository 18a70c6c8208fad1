#include "below.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <map>

namespace penstock::cache_service {
namespace {

struct Descriptor {
    explicit Descriptor(int taken) : number(taken) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() { close(number); }
    const int number;
};

timespec time_of(const statx_timestamp& time) { return {time.tv_sec, time.tv_nsec}; }

// Returns whether an object has one time of birth as long as it lives. Overlayfs tells that of the
// copy which it makes at the first change of what lies in a lower layer.
bool keeps_birth(const Below& below, dev_t device) {
    thread_local std::map<dev_t, bool> known;
    const auto found = known.find(device);
    if (found != known.end()) return found->second;
    struct statfs system {};
    if (fstatfs(below.get(), &system) != 0) return true;
    return known[device] = system.f_type != OVERLAYFS_SUPER_MAGIC;
}

}  // namespace

Below Below::take(int descriptor) {
    if (descriptor < 0) return {};
    const auto owner = std::make_shared<const Descriptor>(descriptor);
    return Below(std::shared_ptr<const int>(owner, &owner->number));
}

Below Below::open(const Below& folder, const char* name) {
    return take(openat(folder.get(), name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
}

bool Identity::is(const Identity& other) const {
    const bool told = born_s != 0 && other.born_s != 0;
    return device == other.device && number == other.number && type == other.type &&
           (!told || (born_s == other.born_s && born_ns == other.born_ns));
}

ino_t shown_number(dev_t root, dev_t device, ino_t number) {
    constexpr unsigned kShift = 48;  // few file systems have numbers so high
    constexpr ino_t kMask = 0x7fff;
    if (device == root) return number;
    const ino_t mark = (ino_t{major(device)} * 257 + minor(device)) & kMask;
    return number ^ ((mark == 0 ? kMask : mark) << kShift);
}

bool describe(const Below& below, struct stat* attributes, Identity* identity) {
    struct statx status {};
    constexpr unsigned kWanted = STATX_BASIC_STATS | STATX_BTIME;
    if (statx(below.get(), "", AT_EMPTY_PATH, kWanted, &status) != 0) return false;
    *attributes = {};
    attributes->st_dev = makedev(status.stx_dev_major, status.stx_dev_minor);
    attributes->st_ino = status.stx_ino;
    attributes->st_mode = status.stx_mode;
    attributes->st_nlink = status.stx_nlink;
    attributes->st_uid = status.stx_uid;
    attributes->st_gid = status.stx_gid;
    attributes->st_rdev = makedev(status.stx_rdev_major, status.stx_rdev_minor);
    attributes->st_size = static_cast<off_t>(status.stx_size);
    attributes->st_blksize = static_cast<blksize_t>(status.stx_blksize);
    attributes->st_blocks = static_cast<blkcnt_t>(status.stx_blocks);
    attributes->st_atim = time_of(status.stx_atime);
    attributes->st_mtim = time_of(status.stx_mtime);
    attributes->st_ctim = time_of(status.stx_ctime);
    *identity = {attributes->st_dev, attributes->st_ino, attributes->st_mode & S_IFMT};
    if ((status.stx_mask & STATX_BTIME) != 0 && keeps_birth(below, attributes->st_dev)) {
        identity->born_s = status.stx_btime.tv_sec;
        identity->born_ns = status.stx_btime.tv_nsec;
    }
    return true;
}

}  // namespace penstock::cache_service
