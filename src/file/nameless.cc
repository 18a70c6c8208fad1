// Whether a file that is open still has a name.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <climits>
#include <string>
#include <string_view>

#include "penstock/file_cache.h"
#include "storage/system_calls.h"

namespace penstock {
namespace {

// The name is `.nfs`, the file's number and a counter, as 16 and 8 digits.
bool is_kept_by_nfs(int descriptor) {
    constexpr std::string_view kBegin = ".nfs";
    constexpr size_t kSize = kBegin.size() + 24;
    char path[PATH_MAX];
    const ssize_t size = storage::system::readlink(
        ("/proc/self/fd/" + std::to_string(descriptor)).c_str(), path, sizeof path);
    if (size <= 0) return false;
    std::string_view name(path, static_cast<size_t>(size));
    name.remove_prefix(name.rfind('/') + 1);
    struct statfs state {};
    return name.size() == kSize && name.starts_with(kBegin) &&
           storage::system::fstatfs(descriptor, &state) == 0 && state.f_type == NFS_SUPER_MAGIC;
}

}  // namespace

Nameless nameless(int descriptor) {
    struct statx state {};
    constexpr int kFlags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
    if (descriptor < 0 ||
        storage::system::statx(descriptor, "", kFlags, STATX_NLINK, &state) != 0 ||
        (state.stx_mask & STATX_NLINK) == 0)
        return Nameless::kNo;
    if (state.stx_nlink == 0) return Nameless::kYes;
    return is_kept_by_nfs(descriptor) ? Nameless::kKeptByNfs : Nameless::kNo;
}

}  // namespace penstock
