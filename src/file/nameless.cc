// Whether a file that is open still has a name.
#include <fcntl.h>
#include <sys/stat.h>

#include <cinttypes>
#include <climits>
#include <cstdio>
#include <string>
#include <string_view>

#include "penstock/file_cache.h"
#include "storage/system_calls.h"

namespace penstock {
namespace {

// The name is `.nfs`, the file's number and a counter, as 16 and 8 digits.
bool is_kept_by_nfs(int descriptor, uint64_t inode) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    constexpr size_t kCounterDigits = 8;
    char begin[24];
    const int begin_size = std::snprintf(begin, sizeof begin, ".nfs%016" PRIx64, inode);
    char path[PATH_MAX];
    const ssize_t size = storage::system::readlink(
        ("/proc/self/fd/" + std::to_string(descriptor)).c_str(), path, sizeof path);
    if (size <= 0) return false;
    std::string_view name(path, static_cast<size_t>(size));
    name.remove_prefix(name.rfind('/') + 1);
    return name.size() == static_cast<size_t>(begin_size) + kCounterDigits &&
           name.starts_with(begin) && name.find_first_not_of(kDigits, 4) == std::string_view::npos;
}

}  // namespace

Nameless nameless(int descriptor) {
    struct statx state {};
    constexpr int kFlags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
    if (descriptor < 0 ||
        storage::system::statx(descriptor, "", kFlags, STATX_NLINK | STATX_INO, &state) != 0 ||
        (state.stx_mask & STATX_NLINK) == 0)
        return Nameless::kNo;
    if (state.stx_nlink == 0) return Nameless::kYes;
    if (state.stx_dev_major != 0) return Nameless::kNo;  // a disk has the file, not a server
    return is_kept_by_nfs(descriptor, state.stx_ino) ? Nameless::kKeptByNfs : Nameless::kNo;
}

}  // namespace penstock
