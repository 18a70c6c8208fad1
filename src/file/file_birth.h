// What tells a file from another one that has its inode number later.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "file/write_log.h"
#include "storage/system_calls.h"

namespace penstock::file {

// Describes the file behind a descriptor. Returns false if that fails.
inline bool describe_birth(int descriptor, LoggedFile* out) {
    struct statx state {};
    if (storage::system::statx(descriptor, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &state) != 0)
        return false;
    out->device = makedev(state.stx_dev_major, state.stx_dev_minor);
    out->inode = state.stx_ino;
    out->birth_ns = (state.stx_mask & STATX_BTIME) == 0
                        ? 0
                        : static_cast<uint64_t>(state.stx_btime.tv_sec) * 1'000'000'000 +
                              state.stx_btime.tv_nsec;
    return true;
}

}  // namespace penstock::file
